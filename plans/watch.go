package plans

import (
	"crypto/sha256"
	"fmt"
	"os"
	"time"
)

const (
	lookInterval = 250 * time.Millisecond
	// settled is the age from which a file with an unchanged time of modification is not read
	// again. A file that is younger may be written twice in one tick of its file system's clock.
	settled = 2 * time.Second
)

// watcher sees changes of a file.
type watcher struct {
	info    os.FileInfo // when it was last read
	judged  [32]byte    // hash of the content that was last parsed
	pending [32]byte    // hash of another content that was seen once
	trouble string      // error that was last reported
}

// read reads and parses the file.
func (w *watcher) read(path string) (*Set, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("plans: %w", err)
	}
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return w.parse(path, info, text)
}

// parse parses what was read.
func (w *watcher) parse(path string, info os.FileInfo, text []byte) (*Set, error) {
	w.info, w.judged, w.pending = info, sha256.Sum256(text), [32]byte{}
	return parseSet(path+": ", text)
}

// unchanged reports whether the file need not be read.
func (w *watcher) unchanged(info os.FileInfo) bool {
	return w.info != nil && w.pending == [32]byte{} && os.SameFile(info, w.info) &&
		info.ModTime().Equal(w.info.ModTime()) && info.Size() == w.info.Size() &&
		time.Since(info.ModTime()) > settled
}

// stands returns the content of the file if it is another one than that which was last parsed, and
// two looks have seen the same; otherwise nil. Between them, a program that writes the file in
// parts goes on. The content is what the looks have seen: what is read later may be a part again.
func (w *watcher) stands(path string) (os.FileInfo, []byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, fmt.Errorf("plans: %w", err)
	}
	if w.unchanged(info) {
		return nil, nil, nil
	}
	text, err := readFile(path)
	if err != nil {
		return nil, nil, err
	}
	switch sum := sha256.Sum256(text); sum {
	case w.judged:
		w.info, w.pending = info, [32]byte{}
		return nil, nil, nil
	case w.pending:
		return info, text, nil
	default:
		w.pending = sum
		return nil, nil, nil
	}
}
