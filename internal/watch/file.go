// Package watch sees changes of a file.
package watch

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"time"
)

// Interval is how often Stands should be called.
const Interval = 250 * time.Millisecond

// Every calls f at every interval, until ctx ends.
func Every(ctx context.Context, interval time.Duration, f func(context.Context)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// old is the age from which a file with an unchanged time of modification is not read again. A file
// that is younger may be written twice in one tick of its file system's clock.
const old = 2 * time.Second

var (
	errDirectory = errors.New("is a directory")
	errNoFile    = errors.New("is no regular file")
)

// File is a file that may change. One goroutine uses it at a time. A look at a file may hang, as on a
// network file system whose server is gone, and nothing ends it. So each runs in a goroutine that the
// File owns. There is one at a time. It may outlive the File, and ends with its look.
type File struct {
	Path string
	Max  int64 // bytes that are read, and one more of a longer file

	looking chan look   // receives the look that goes on, or nil
	info    os.FileInfo // when it was last taken
	taken   [32]byte    // hash of the content that was last taken
	pending [32]byte    // hash of another content that was seen once
}

// look is what was seen of a file.
type look struct {
	info os.FileInfo
	text []byte
	same bool // the file need not be read
	err  error
}

// Read reads the file and takes its content. It returns the error of ctx if that ends first.
func (f *File) Read(ctx context.Context) ([]byte, error) {
	seen, err := f.look(ctx, false)
	if err == nil {
		f.take(seen.info, seen.text)
	}
	return seen.text, err
}

// look looks at the file, and reads it unless it may skip a file that is the same. If ctx ends first,
// the look goes on, and the next one waits for its end.
func (f *File) look(ctx context.Context, skip bool) (look, error) {
	if f.looking != nil {
		if _, err := f.end(ctx); err != nil {
			return look{}, err
		}
	}
	f.looking = make(chan look, 1)
	go func(f File, seen chan<- look) { seen <- f.see(skip) }(*f, f.looking)
	seen, err := f.end(ctx)
	if err != nil {
		return look{}, err
	}
	return seen, seen.err
}

// end waits for the end of the look that goes on.
func (f *File) end(ctx context.Context) (look, error) {
	select {
	case seen := <-f.looking:
		f.looking = nil
		return seen, nil
	case <-ctx.Done():
		return look{}, ctx.Err()
	}
}

func (f *File) see(skip bool) (seen look) {
	if seen.info, seen.err = os.Stat(f.Path); seen.err != nil {
		return seen
	}
	if seen.same = skip && f.unchanged(seen.info); !seen.same {
		seen.text, seen.err = f.text(seen.info)
	}
	return seen
}

func (f *File) take(info os.FileInfo, text []byte) {
	f.info, f.taken, f.pending = info, sha256.Sum256(text), [32]byte{}
}

// text reads a regular file. To open another, such as a pipe, might take for ever.
func (f *File) text(info os.FileInfo) ([]byte, error) {
	switch {
	case info.IsDir():
		return nil, &os.PathError{Op: "read", Path: f.Path, Err: errDirectory}
	case !info.Mode().IsRegular():
		return nil, &os.PathError{Op: "read", Path: f.Path, Err: errNoFile}
	}
	file, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, f.Max+1))
}

// unchanged reports whether the file need not be read.
func (f *File) unchanged(info os.FileInfo) bool {
	return f.info != nil && f.pending == [32]byte{} && os.SameFile(info, f.info) &&
		info.ModTime().Equal(f.info.ModTime()) && info.Size() == f.info.Size() &&
		time.Since(info.ModTime()) > old
}

// Stands takes the content of the file if it is another one than that which was last taken, and two
// calls have seen the same; otherwise changed is false. Between them, a program that writes the file
// in parts goes on. The content is what the calls have seen: what is read later may be a part again.
// Stands returns the error of ctx if that ends first.
func (f *File) Stands(ctx context.Context) (text []byte, changed bool, err error) {
	seen, err := f.look(ctx, true)
	if err != nil || seen.same {
		return nil, false, err
	}
	switch sum := sha256.Sum256(seen.text); sum {
	case f.taken:
		f.info, f.pending = seen.info, [32]byte{}
	case f.pending:
		f.take(seen.info, seen.text)
		return seen.text, true, nil
	default:
		f.pending = sum
	}
	return nil, false, nil
}
