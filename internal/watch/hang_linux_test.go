package watch_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/watch"
)

// looks returns how many goroutines look at a file.
func looks() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "internal/watch.(*File).see(")
}

// A look that hangs does not keep its caller. Only one goroutine hangs for a File, however often it is
// asked, and the File goes on when the file system answers again.
func TestLookHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	gatetest.NoError(t, os.WriteFile(path, []byte("one"), 0o600))
	f := watch.File{Path: path, Max: 10}
	gatetest.Need(t, string(gatetest.Must(f.Read(t.Context()))(t)), "one", "got")
	hanging := gatetest.Hang(t, path)
	hanging.Write(", two")
	for range 3 {
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, _, err := f.Stands(ctx)
			left <- err
		}()
		hanging.AwaitOpen()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		gatetest.Equal(t, looks(), 1, "goroutines look")
	}
	hanging.Release()
	for _, want := range []string{"", "one, two"} { // two looks that are not left see the same
		text, changed, err := f.Stands(t.Context())
		if err != nil || changed != (want != "") || string(text) != want {
			t.Errorf("%q, %t, %v, want %q", text, changed, err, want)
		}
	}
	gatetest.Equal(t, looks(), 0, "goroutines look")
}
