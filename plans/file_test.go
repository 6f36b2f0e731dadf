package plans_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/plans"
)

// rated is a file whose default plan has that rate per minute.
func rated(rate string) string {
	return "default: free\nplans: {free: {limits: {api: {rate: " + rate + ", per: 1m}}}}\n"
}

func write(t testing.TB, path, text string) {
	t.Helper()
	gatetest.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// looked lets a Book look at its file twice.
func looked() {
	time.Sleep(501 * time.Millisecond)
	synctest.Wait()
}

func TestFileIsReadWhenItChanges(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "plans.yaml")
	rename := func(t *testing.T, text string) {
		write(t, path+".new", text)
		gatetest.NoError(t, os.Rename(path+".new", path))
	}
	symlink := func(t *testing.T, text string) {
		target := gatetest.Must(os.MkdirTemp(dir, "version"))(t)
		write(t, filepath.Join(target, "plans.yaml"), text)
		gatetest.NoError(t, os.Symlink(filepath.Join(target, "plans.yaml"), path+".link"))
		gatetest.NoError(t, os.Rename(path+".link", path))
	}
	write(t, path, rated("10"))
	synctest.Test(t, func(t *testing.T) {
		var s seen
		p := newBook(t, plans.Config{File: path, Observe: s.observe})
		defer p.Close()
		expect(t, p, "acme", free)
		for _, c := range []struct {
			name   string
			change func(*testing.T, string)
			rate   int64
			text   string
		}{
			{"written", func(t *testing.T, text string) { write(t, path, text) }, 11, rated("11")},
			{"renamed", rename, 13, rated("13")},
			{"symbolic link", symlink, 14, rated("14")},
			{"another symbolic link", symlink, 15, rated("15")},
		} {
			c.change(t, c.text)
			looked()
			expect(t, p, "acme", core.PerMinute(c.rate))
			if e := s.take(plans.OpReload); len(e) != 1 || e[0].Err != nil {
				t.Errorf("%s: events %v", c.name, e)
			}
			looked()
			if e := s.take(plans.OpReload); len(e) > 0 {
				t.Errorf("%s: it is read again: %v", c.name, e)
			}
		}
	})
}

// A bad file changes nothing, and is reported once with every fault of it.
func TestBadFileKeepsThePlans(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plans.yaml")
	write(t, path, rated("10"))
	synctest.Test(t, func(t *testing.T) {
		var s seen
		p := newBook(t, plans.Config{File: path, Observe: s.observe})
		defer p.Close()
		_, _, err := p.Names()
		gatetest.NoError(t, err)
		for _, c := range []struct {
			name  string
			spoil func()
			want  []string
		}{
			{"faults", func() { write(t, path, "default: gold\n"+rated("-1")[14:]) }, []string{"line 2: plans.free.limits.api.rate is -1", `line 1: default is "gold"`}},
			{"two plans of a name", func() { write(t, path, "default: a\nplans:\n  a: {}\n  a: {}\n") }, []string{"plans.a is there twice: in line 3 and in line 4"}},
			{"name of a policy", func() { write(t, path, strings.Replace(rated("5"), "api", "apii", 1)) }, []string{"plans.free.limits do not name api", "limit apii, which was not there"}},
			{"deleted", func() { os.Remove(path) }, []string{"no such file"}},
			{"a directory", func() { os.Mkdir(path, 0o700) }, []string{"is a directory"}},
		} {
			c.spoil()
			looked()
			looked()
			expect(t, p, "acme", free)
			e := s.take(plans.OpReload)
			if len(e) != 1 || e[0].Err == nil {
				t.Fatalf("%s: events %v", c.name, e)
			}
			for _, w := range c.want {
				if !strings.Contains(e[0].Err.Error(), w) || !strings.Contains(e[0].Err.Error(), "plans") {
					t.Errorf("%s: %v\ndoes not say %q", c.name, e[0].Err, w)
				}
			}
		}
		gatetest.NoError(t, os.Remove(path))
		write(t, path, rated("20"))
		looked()
		expect(t, p, "acme", core.PerMinute(20))
	})
}

// A file that is written in parts is read when it is whole.
func TestFileThatIsWrittenInParts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plans.yaml")
	write(t, path, twoPlans)
	synctest.Test(t, func(t *testing.T) {
		var s seen
		p := newBook(t, plans.Config{File: path, Observe: s.observe})
		defer p.Close()
		text := strings.ReplaceAll(twoPlans, "rate: 10,", "rate: 30,")
		for i := 1; i < len(text); i += 20 { // most parts are valid YAML, and some are plans
			write(t, path, text[:i])
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
		}
		if e := s.take(plans.OpReload); len(e) > 0 {
			t.Errorf("a part is read: %v", e)
		}
		expect(t, p, "acme", free)
		write(t, path, text)
		looked()
		expect(t, p, "acme", core.PerMinute(30))
	})
}

// Close waits for a look that makes another Set hold.
func TestCloseWaitsForLook(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "plans.yaml")
	write(t, path, rated("10"))
	looks := make(chan struct{})
	var over atomic.Bool
	p := newBook(t, plans.Config{File: path, Observe: func(ctx context.Context, _ core.Event) {
		close(looks)
		<-ctx.Done() // Close has begun
		for range 1000 {
			runtime.Gosched()
		}
		over.Store(true)
	}})
	write(t, path, rated("11"))
	<-looks
	p.Close()
	gatetest.Equal(t, over.Load(), true, "the look is over")
}

func TestReplace(t *testing.T) {
	p := newBook(t, plans.Config{})
	set := parse(t, rated("77"))
	if err := p.Replace(set); err != nil || p.Set() != set {
		t.Fatal(err)
	}
	expect(t, p, "acme", core.PerMinute(77))
	if p.Replace(nil) == nil || p.Replace(new(plans.Set)) == nil {
		t.Error("there is no error")
	}
	expect(t, p, "acme", core.PerMinute(77))
}

// A tenant whose plan the file has no longer gets the default plan, or is refused.
func TestPlanThatIsRemoved(t *testing.T) {
	d := &directory{plans: map[string]string{"acme": "pro"}}
	for _, f := range []plans.OnFailure{plans.OnFailureDefault, plans.OnFailureRefuse} {
		var s seen
		p := newBook(t, plans.Config{Resolve: d.resolve, OnFailure: f, Observe: s.observe})
		expect(t, p, "acme", pro)
		setOverride(t, p, "other", plans.Override{Plan: "pro"})
		expect(t, p, "other", pro)
		gatetest.NoError(t, p.Replace(parse(t, rated("5"))))
		expect(t, p, "other", core.PerMinute(5)) // an override for a plan that is not there is none
		s.take()
		gatetest.NoError(t, p.Refresh(t.Context(), "other"))
		expect(t, p, "other", core.PerMinute(5))
		if e := s.take(plans.OpOverride); len(e) != 1 || !errors.Is(e[0].Err, plans.ErrUnknownPlan) {
			t.Errorf("events %v", e)
		}
		plan, err := p.For(t.Context(), "acme")
		if f == plans.OnFailureDefault && (err != nil || plan.Algorithm("api") != core.PerMinute(5)) || f == plans.OnFailureRefuse && err == nil {
			t.Errorf("%v: %v, %v", f, plan, err)
		}
	}
}
