package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
)

const maxLine = 256 << 10 // bytes; a longer line is cut

// Faults are the lines that were no request of a known format.
type Faults struct {
	Lines int64
	First int64  // number of the first one, from 1
	Text  string // of the first one, shortened
}

// Read calls f with each request of a log, in the order of the lines, and returns after the last,
// with the number of lines. It ends early with the error of f, of r or of ctx.
func Read(
	ctx context.Context, r io.Reader, f func(*Request) error,
) (lines int64, faults Faults, err error) {
	text, err := uncompressed(r)
	if err != nil {
		return 0, faults, err
	}
	for ctx.Err() == nil {
		line, more, err := text.ReadLine()
		if errors.Is(err, io.EOF) {
			return lines, faults, nil
		}
		if err != nil {
			return lines, faults, fmt.Errorf("accesslog: line %d: %w", lines+1, err)
		}
		lines++
		r := Request{Line: lines}
		switch {
		case len(line) == 0:
		case parse(string(line), &r) != nil:
			faults.add(lines, line)
		default:
			if err := f(&r); err != nil {
				return lines, faults, err
			}
		}
		for more && err == nil {
			_, more, err = text.ReadLine()
		}
	}
	return lines, faults, ctx.Err()
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

// add counts a line.
func (f *Faults) add(number int64, line []byte) {
	if f.Lines == 0 {
		f.First, f.Text = number, string(line[:min(len(line), shownBytes)])
	}
	f.Lines++
}

const shownBytes = 120
