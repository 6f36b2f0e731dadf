package plans_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/plans"
)

// A change of a plan is obeyed by 4 Books, which share Redis and the file alone, within a second: one of
// an override, one that Refresh tells of, and one of the file.
func TestBooksObeyAChangeWithinASecond(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	file, directory := filepath.Join(dir, "plans.yaml"), filepath.Join(dir, "acme")
	write(t, file, twoPlans)
	write(t, directory, "free")
	var books []*plans.Book
	for range 4 {
		books = append(books, newBook(t, plans.Config{
			File: file, Client: s.Client(t), TTL: time.Hour,
			Resolve: func(context.Context, string) (string, error) {
				name, err := os.ReadFile(directory)
				return string(name), err
			},
		}))
	}
	late := 0 // on a machine that stands still meanwhile
	p := redisBook(t, s.Client(t), new(seen), plans.Config{Set: parse(t, twoPlans)})
	own := core.PerMinute(77)
	for _, c := range []struct {
		name   string
		change func() error
		want   int64
	}{
		{"as they start", func() error { return nil }, 10},
		{"override of the plan", func() error { return p.SetOverride(t.Context(), "acme", plans.Override{Plan: "pro"}) }, 100},
		{"override of a limit", func() error {
			return p.SetOverride(t.Context(), "acme", plans.Override{Limits: map[string]core.Algorithm{"api": own}})
		}, 77},
		{"no override", func() error {
			_, err := p.DeleteOverride(t.Context(), "acme")
			return err
		}, 10},
		{"another plan", func() error {
			write(t, directory, "pro")
			return p.Refresh(t.Context(), "acme")
		}, 100},
		{"another file", func() error {
			write(t, file, strings.ReplaceAll(twoPlans, "rate: 100,", "rate: 500,"))
			return nil
		}, 500},
	} {
		gatetest.NoError(t, c.change())
		changed := time.Now()
		for i, book := range books {
			await(t, c.name, func() bool { return limit(t, book, "acme") == core.PerMinute(c.want) })
			if i == len(books)-1 && time.Since(changed) > time.Second {
				late++
			}
		}
	}
	if late > 2 {
		t.Errorf("%d changes were obeyed after a second or more", late)
	}
}
