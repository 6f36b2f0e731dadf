package wire

import (
	"compress/gzip"
	"errors"
	"io"
	"strings"
)

// coding is what a Tap can do with the encoding of a response.
type coding uint8

const (
	codingNone  coding = iota
	codingGzip         // a copy is decoded, the response is passed on as it is
	codingOther        // passed on unread
)

// codingOf reads a Content-Encoding.
func codingOf(encoding string) coding {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
		return codingNone
	case "gzip", "x-gzip":
		return codingGzip
	}
	return codingOther
}

// IsIdentity reports whether a Content-Encoding leaves the bytes as they are.
func IsIdentity(encoding string) bool { return codingOf(encoding) == codingNone }

// inflater decodes a copy of a gzip response for a reader. It uses the memory of a gzip.Reader and
// of one buffer.
type inflater struct {
	pipe *io.PipeWriter
	done chan struct{}
}

// newInflater starts the goroutine. close ends it.
func newInflater(r *reader) *inflater {
	from, to := io.Pipe()
	i := &inflater{pipe: to, done: make(chan struct{})}
	go func() {
		defer close(i.done)
		err := inflate(from, r)
		switch {
		case err == io.EOF, errors.Is(err, io.ErrUnexpectedEOF): // the stream ended or was aborted
		default:
			r.corrupt()
		}
		from.CloseWithError(err) // later writes return at once
	}()
	return i
}

// inflate never returns nil.
func inflate(from io.Reader, r *reader) error {
	z, err := gzip.NewReader(from)
	if err != nil {
		return err
	}
	var buf [4096]byte
	for {
		n, err := z.Read(buf[:])
		r.read(buf[:n], false)
		if err != nil {
			return err
		}
	}
}

// write waits until p is read. It needs no error: corrupt has recorded it.
func (i *inflater) write(p []byte) { _, _ = i.pipe.Write(p) }

func (i *inflater) close() {
	_ = i.pipe.Close() // a PipeWriter never fails to close
	<-i.done
}
