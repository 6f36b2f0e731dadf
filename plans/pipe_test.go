//go:build unix

package plans_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/plans"
)

// A file that becomes a pipe is not opened, which might take for ever. The plans that were read hold.
func TestPipeIsNoFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "plans.yaml")
	gatetest.NoError(t, os.WriteFile(path, []byte("default: free\nplans: {free: {limits: {api: deny}}}\n"), 0o600))
	faults := make(chan error, 10)
	book := core.Must(plans.New(plans.Config{File: path, Observe: func(_ context.Context, e core.Event) {
		faults <- e.(*plans.Event).Err
	}}))
	gatetest.NoError(t, os.Remove(path))
	gatetest.NoError(t, syscall.Mkfifo(path, 0o600))
	for err := range faults { // a look may have found no file
		if err == nil {
			t.Error("the pipe was read")
		}
		if err == nil || strings.Contains(err.Error(), "no regular file") {
			break
		}
	}
	book.Close()
	for name, read := range map[string]func() error{
		"ReadSet": func() error { _, err := plans.ReadSet(path); return err },
		"New":     func() error { _, err := plans.New(plans.Config{File: path}); return err },
	} {
		if err := read(); err == nil || !strings.Contains(err.Error(), "no regular file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if set := book.Set(); len(set.Names()) != 1 {
		t.Error(set.Names())
	}
}
