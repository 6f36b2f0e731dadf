package llm

import (
	"compress/gzip"
	"errors"
	"io"
)

// inflater decodes a gzip response beside the one that the client gets. Its memory is that of a
// gzip.Reader and one buffer.
type inflater struct {
	pipe *io.PipeWriter
	done chan struct{}
}

// newInflater starts the goroutine, which ends with close.
func newInflater(o *observer) *inflater {
	r, w := io.Pipe()
	i := &inflater{pipe: w, done: make(chan struct{})}
	go func() {
		defer close(i.done)
		err := inflate(r, o)
		switch {
		case err == io.EOF, errors.Is(err, io.ErrUnexpectedEOF): // the stream ended or was aborted
		case errors.Is(err, gzip.ErrHeader) && o.result().Complete: // bytes behind the response
		default:
			o.corrupt()
		}
		r.CloseWithError(err) // later writes return at once
	}()
	return i
}

// inflate never returns nil.
func inflate(r io.Reader, o *observer) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	var buf [4096]byte
	for {
		n, err := z.Read(buf[:])
		o.read(buf[:n])
		if err != nil {
			return err
		}
	}
}

// write waits until p is read. An error concerns only what is observed: corrupt has recorded it.
func (i *inflater) write(p []byte) { _, _ = i.pipe.Write(p) }

func (i *inflater) close() {
	_ = i.pipe.Close() // a PipeWriter never fails to close
	<-i.done
}
