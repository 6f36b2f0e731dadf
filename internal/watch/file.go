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

// File is a file that may change. One goroutine uses it at a time.
type File struct {
	Path string
	Max  int64 // bytes that are read, and one more of a longer file

	info    os.FileInfo // when it was last taken
	taken   [32]byte    // hash of the content that was last taken
	pending [32]byte    // hash of another content that was seen once
}

// Read reads the file and takes its content.
func (f *File) Read() ([]byte, error) {
	info, err := os.Stat(f.Path)
	if err != nil {
		return nil, err
	}
	text, err := f.text(info)
	if err == nil {
		f.take(info, text)
	}
	return text, err
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
func (f *File) Stands() (text []byte, changed bool, err error) {
	info, err := os.Stat(f.Path)
	if err != nil || f.unchanged(info) {
		return nil, false, err
	}
	if text, err = f.text(info); err != nil {
		return nil, false, err
	}
	switch sum := sha256.Sum256(text); sum {
	case f.taken:
		f.info, f.pending = info, [32]byte{}
	case f.pending:
		f.take(info, text)
		return text, true, nil
	default:
		f.pending = sum
	}
	return nil, false, nil
}
