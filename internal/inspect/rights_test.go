package inspect_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/plans"
)

// documented returns the rights of the lines of docs/redis.md.
func documented(t *testing.T) (lines []string) {
	t.Helper()
	page := gatetest.Must(os.ReadFile("../../docs/redis.md"))(t)
	for _, line := range regexp.MustCompile(`(?m)^ACL SETUSER app (.*)$`).FindAllStringSubmatch(string(page), -1) {
		lines = append(lines, line[1])
	}
	if len(lines) < 7 {
		t.Fatalf("%d lines of rights", len(lines))
	}
	return lines
}

// The rights that docs/redis.md names suffice for every question and every change.
func TestRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	boss := server.Client(t)
	set := func(words string) {
		t.Helper()
		args := []any{"ACL", "SETUSER", "app"}
		for word := range strings.FieldsSeq(words) {
			args = append(args, word)
		}
		noError(t, boss.Do(t.Context(), args...).Err())
	}
	lines := documented(t)
	set("reset resetchannels " + strings.Join(lines[:3], " ") + " " + strings.Join(lines[4:7], " "))
	client := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
	g := gatetest.Redis(t, client, core.Config{DisableDenialCache: true})
	quota := newPolicy(t, core.PolicyConfig{Name: "quota", Raisable: true,
		Algorithm: core.Calendar{Limit: 100, Every: core.PeriodYear, In: time.UTC}})
	bans := limited(t, "bans", core.Block{Strikes: 3, Within: time.Hour, For: time.Hour})
	planSet := gatetest.Must(plans.NewSet(plans.SetConfig{Default: "free", Plans: map[string]plans.Plan{"free": {}}}))(t)
	book := gatetest.Must(plans.New(plans.Config{Set: planSet, Client: client}))(t)
	defer book.Close()
	streams := newSemaphore(t, g, "streams")
	i := newInspector(t, inspect.Config{
		Gate: g, Policies: []*core.Policy{quota, bans}, Semaphores: []*semaphore.Semaphore{streams}, Plans: book,
	})
	key := newKey(t, "acme", "bob")
	for range 2 { // the slots of one holder lie in another form than those of several
		l, err := streams.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{{Key: newKey(t, "acme"), Limit: 9}}})
		noError(t, err)
		defer func() { _ = l.Release(t.Context()) }()
	}
	decide(t, g, core.Charge{Policy: quota, Key: key, Cost: 50})
	check := func(err error) {
		t.Helper()
		worked(t, err)
	}
	everything := func() {
		t.Helper()
		s := lookup(t, i, key)
		_, err := i.Give(t.Context(), quota, key, 5, "a"+time.Now().String())
		check(err)
		until := time.Now().Add(time.Hour)
		_, err = i.Raise(t.Context(), quota, key, 5, until, "b"+time.Now().String())
		check(err)
		_, err = i.Raise(t.Context(), quota, key, -5, until, "c"+time.Now().String())
		check(err)
		_, err = i.Block(t.Context(), bans, key, time.Hour)
		check(err)
		_, err = i.Blocked(t.Context(), bans, 10)
		check(err)
		check(i.Reset(t.Context(), bans, key))
		_, err = streams.Evict(t.Context(), key, "nobody")
		check(err)
		check(book.SetOverride(t.Context(), "acme", plans.Override{Plan: "free"}))
		_, err = book.DeleteOverride(t.Context(), "acme")
		check(err)
		gatetest.Equal(t, len(s.Slots[0].Others), 2, "holders")
	}
	everything()

	set("-scan")
	_, err := i.Blocked(t.Context(), bans, 10)
	gatetest.Contains(t, inspect.Advice(err), " +scan", "advice on %v", err)
}
