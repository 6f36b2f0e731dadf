package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
)

const (
	chunkSize = 256 << 10 // bytes of lines that are parsed together
	maxLine   = 256 << 10 // bytes; a longer line is cut
)

// Faults are the lines that were no request of a known format.
type Faults struct {
	Lines int64
	First int64  // number of the first one, from 1
	Text  string // of the first one, shortened
}

// chunk is lines that are parsed together.
type chunk struct {
	text    []byte
	first   int64 // number of the first line
	entries []Entry
	faults  Faults
	lines   int64
	parsed  chan struct{}
}

// Read calls f with each request of a log, in the order of the lines, and returns after the last,
// with the number of lines. It parses lines on every processor, and keeps a bounded number of them
// in memory. It ends early with the error of f, of r or of ctx.
func Read(
	ctx context.Context, r io.Reader, f func(*Entry) error,
) (lines int64, faults Faults, err error) {
	text, err := uncompressed(r)
	if err != nil {
		return 0, faults, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	workers := runtime.GOMAXPROCS(0)
	work, order := make(chan *chunk, workers), make(chan *chunk, 2*workers)
	var readErr error
	running.Go(func() {
		defer close(order)
		defer close(work)
		readErr = split(text, func(c *chunk) bool {
			for _, to := range []chan *chunk{order, work} {
				select {
				case to <- c:
				case <-ctx.Done():
					return false
				}
			}
			return true
		})
	})
	for range workers {
		running.Go(func() {
			var p parser
			for c := range work {
				c.parse(&p)
				close(c.parsed)
			}
		})
	}
	for c := range order {
		select {
		case <-c.parsed:
		case <-ctx.Done():
			return lines, faults, ctx.Err()
		}
		lines += c.lines
		faults.add(&c.faults)
		for i := range c.entries {
			if err := f(&c.entries[i]); err != nil {
				return lines, faults, err
			}
		}
		chunks.Put(c)
	}
	if err := ctx.Err(); err != nil {
		return lines, faults, err
	}
	return lines, faults, readErr
}

// uncompressed returns what a log says, whether or not it is compressed by gzip.
func uncompressed(r io.Reader) (*bufio.Reader, error) {
	b := bufio.NewReaderSize(r, maxLine)
	if head, _ := b.Peek(2); !bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return b, nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, fmt.Errorf("accesslog: %w", err)
	}
	return bufio.NewReaderSize(z, maxLine), nil
}

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// split cuts a log into chunks until send returns false.
func split(r *bufio.Reader, send func(*chunk) bool) error {
	for first := int64(1); ; {
		c := chunks.Get().(*chunk)
		*c = chunk{
			text: c.text[:0], first: first, entries: c.entries[:0], parsed: make(chan struct{}),
		}
		err := c.fill(r)
		first += c.lines
		if c.lines > 0 && !send(c) || errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accesslog: line %d: %w", first, err)
		}
	}
}

// fill reads whole lines. It cuts a line that is too long.
func (c *chunk) fill(r *bufio.Reader) error {
	for len(c.text) < chunkSize {
		line, err := r.ReadSlice('\n')
		if len(line) == 0 {
			return err
		}
		c.lines++
		c.text = append(c.text, line...)
		if err == nil {
			continue
		}
		c.text = append(c.text, '\n')
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.ReadSlice('\n')
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// parse parses the lines. It skips empty ones.
func (c *chunk) parse(p *parser) {
	number := c.first
	for line := range bytes.Lines(c.text) {
		line = bytes.TrimRight(line, "\r\n")
		e := Entry{Line: number}
		switch {
		case len(line) == 0:
		case p.parse(line, &e) != nil:
			c.faults.add(&Faults{Lines: 1, First: number, Text: shortened(line)})
		default:
			c.entries = append(c.entries, e)
		}
		number++
	}
}

// add adds faults of later lines.
func (f *Faults) add(more *Faults) {
	if f.Lines == 0 {
		f.First, f.Text = more.First, more.Text
	}
	f.Lines += more.Lines
}

const shownBytes = 120

func shortened(line []byte) string {
	if len(line) > shownBytes {
		return string(line[:shownBytes]) + "..."
	}
	return string(line)
}
