package plans_test

import (
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/plans"
)

// A plans file whose read hangs keeps neither Replace nor Close.
func TestHangingFile(t *testing.T) {
	t.Parallel()
	const text = "default: free\nplans: {free: {limits: {api: deny}}}\n"
	path := filepath.Join(t.TempDir(), "plans.yaml")
	write(t, path, text)
	book := core.Must(plans.New(plans.Config{File: path}))
	hanging := gatetest.Hang(t, path)
	hanging.Write("# changed\n")
	hanging.AwaitOpen()
	other := core.Must(plans.NewSet(plans.SetConfig{Default: "pro", Plans: map[string]plans.Plan{
		"pro": {Limits: map[string]core.Algorithm{"api": pro}},
	}}))
	var err error
	hanging.Returns("Replace", func() { err = book.Replace(other) })
	if err != nil || book.Set() != other {
		t.Errorf("Replace: %v", err)
	}
	hanging.Returns("Close", book.Close)
	gatetest.Equal(t, book.Set(), other, "the file was read")
}
