package watch_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/watch"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	gatetest.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// written returns a File with a content that was taken.
func written(t *testing.T, text string) *watch.File {
	t.Helper()
	f := &watch.File{Path: filepath.Join(t.TempDir(), "file"), Max: 10}
	write(t, f.Path, text)
	gatetest.Need(t, string(gatetest.Must(f.Read())(t)), text, "got")
	return f
}

// stands expects the content that a call takes, or none.
func stands(t *testing.T, f *watch.File, want string) {
	t.Helper()
	text, changed, err := f.Stands()
	if err != nil || string(text) != want || changed != (want != "") {
		t.Errorf("%q, %t, %v, want %q", text, changed, err, want)
	}
}

// A content is taken when two calls have seen the same, and once.
func TestContentIsTakenWhenItStands(t *testing.T) {
	f := written(t, "one")
	stands(t, f, "")
	for _, part := range []string{"t", "tw", "two"} { // a program writes it in parts
		write(t, f.Path, part)
		stands(t, f, "")
	}
	stands(t, f, "two")
	stands(t, f, "")
	write(t, f.Path, "three")
	stands(t, f, "")
	write(t, f.Path, "two") // back
	stands(t, f, "")
	stands(t, f, "")
}

// A file of the same size and time of modification is read again while it is young, or if another file
// has its name. Otherwise it is not.
func TestSameFileIsNotRead(t *testing.T) {
	for _, c := range []struct {
		age     time.Duration
		renamed bool
		want    string
	}{
		{time.Second, false, "two"},
		{time.Hour, false, ""},
		{time.Hour, true, "two"},
	} {
		f := &watch.File{Path: filepath.Join(t.TempDir(), "file"), Max: 10}
		then := time.Now().Add(-c.age)
		set := func(text string) {
			path := f.Path
			if c.renamed {
				path += ".new"
			}
			write(t, path, text)
			gatetest.NoError(t, os.Chtimes(path, then, then))
			gatetest.NoError(t, os.Rename(path, f.Path))
		}
		set("one")
		gatetest.Must(f.Read())(t)
		set("two")
		stands(t, f, "")
		stands(t, f, c.want)
	}
}

// At most a byte more than Max is read, so that the reader sees that the file is too long.
func TestLongFileIsCut(t *testing.T) {
	f := written(t, "0123456789")
	write(t, f.Path, "0123456789abcdef")
	stands(t, f, "")
	stands(t, f, "0123456789a")
	if text, err := f.Read(); string(text) != "0123456789a" {
		t.Errorf("%q, %v", text, err)
	}
}

// What cannot be read is an error, and the content that was taken stays taken.
func TestUnreadableFile(t *testing.T) {
	f := written(t, "one")
	gatetest.NoError(t, os.Remove(f.Path))
	for range 2 {
		if _, _, err := f.Stands(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("removed: %v", err)
		}
	}
	gatetest.NoError(t, os.Mkdir(f.Path, 0o700))
	want := fmt.Sprintf("read %s: is a directory", f.Path)
	if _, err := f.Read(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	gatetest.NoError(t, os.Remove(f.Path))
	write(t, f.Path, "one")
	stands(t, f, "")
	stands(t, f, "")
}
