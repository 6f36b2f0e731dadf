package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/redistest"
)

// browser starts a Chromium for one test. The test is skipped if there is none, unless the
// environment requires it.
func browser(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("HEADGATE_TEST_REDIS") == "require" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path),
		chromedp.NoSandbox, // root cannot start it otherwise
		chromedp.WSURLReadTimeout(patience))
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, _ = chromedp.NewContext(ctx)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) })
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return ctx
}

// tab is a browser tab with the gateway's page.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// openTab opens the page of a replica with a query.
func openTab(t *testing.T, browser context.Context, r *replica, query string) tab {
	t.Helper()
	ctx, _ := chromedp.NewContext(browser)
	p := tab{t, ctx}
	p.do(chromedp.Navigate(r.url + "/?" + query))
	return p
}

func (p tab) close() {
	p.t.Helper()
	if err := chromedp.Cancel(p.ctx); err != nil && !errors.Is(err, context.Canceled) {
		p.t.Fatal(err)
	}
}

func (p tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// shown returns the states that the page shows: by the stream's id, and sorted.
func (p tab) shown() (ids map[string]string, all []string) {
	p.t.Helper()
	ids, err := chromedp.Run(p.ctx, chromedp.Evaluate[map[string]string](`Object.fromEntries(
		[...document.querySelectorAll('li')].map((li) => [li.id, li.querySelector('.state').textContent]))`))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, state := range ids {
		all = append(all, state)
	}
	slices.Sort(all)
	return ids, all
}

// shows waits until the page shows exactly these states.
func (p tab) shows(want ...string) map[string]string {
	p.t.Helper()
	var ids map[string]string
	var all []string
	defer func() {
		if p.t.Failed() {
			p.t.Logf("shown was %q", all)
			text, err := chromedp.Run(p.ctx, chromedp.Text(chromedp.CSS("ol")))
			p.t.Logf("the page says %q, %v", text, err)
		}
	}()
	eventually(p.t, fmt.Sprintf("the page shows %q", want), func() bool {
		ids, all = p.shown()
		return slices.EqualFunc(all, want, strings.HasPrefix)
	})
	return ids
}

// press presses the button of a stream in this state.
func (p tab) press(ids map[string]string, shown string) (id string) {
	p.t.Helper()
	for i, state := range ids {
		if state == shown {
			id = i
		}
	}
	p.do(chromedp.Click(chromedp.CSS("li[id='" + id + "'] button:enabled")))
	return id
}

func TestFourthStreamWaits(t *testing.T) {
	b := browser(t)
	server := redistest.Start(t)
	p := openTab(t, b, start(t, endless, "REDIS_URL=redis://"+server.Addr), "user=ann&streams=4")
	ids := p.shows("queued, place 1", "running", "running", "running")
	waited := ""
	for id, state := range ids {
		if state == "queued, place 1" {
			waited = id
		}
	}
	p.press(ids, "running")
	if now := p.shows("running", "running", "running", "stopped"); now[waited] != "running" {
		t.Errorf("the stream that waited is %s", now[waited])
	}
	p.close()
	look(t, server).empty()
}

// A browser opens six connections to a host. That must not keep streams from the queue.
func TestPageShowsQueueAndRefusals(t *testing.T) {
	b := browser(t)
	p := openTab(t, b, start(t, endless, "LEASE=3s"), "user=ann&streams=9")
	ids := p.shows("queued, place 1", "queued, place 2", "queued, place 3", "queued, place 4", "queued, place 5",
		"refused", "running", "running", "running")
	p.press(ids, "running")
	ids = p.shows("queued, place 1", "queued, place 2", "queued, place 3", "queued, place 4",
		"refused, come back", "running", "running", "running", "stopped")
	p.press(ids, "refused, come back")
	p.shows("queued, place 1", "queued, place 2", "queued, place 3", "queued, place 4", "queued, place 5",
		"running", "running", "running", "stopped")
}

func TestStreamEndsInPage(t *testing.T) {
	b := browser(t)
	p := openTab(t, b, start(t), "user=ann&streams=1&tokens=6")
	p.shows("done")
	text, err := chromedp.Run(p.ctx, chromedp.Text(chromedp.CSS("li .text")))
	if err != nil || text != "The headgate stands at the head" {
		t.Errorf("text %q, %v", text, err)
	}
}

func TestClosedTabFreesItsSlots(t *testing.T) {
	b := browser(t)
	server := redistest.Start(t)
	r := start(t, endless, "REDIS_URL=redis://"+server.Addr)
	first := openTab(t, b, r, "user=ann&streams=3")
	first.shows("running", "running", "running")
	second := openTab(t, b, r, "user=ann&streams=2")
	second.shows("queued, place 1", "queued, place 2")
	first.close()
	second.shows("running", "running")
	second.close()
	look(t, server).empty()
}

func TestKilledReplicaFreesItsSlots(t *testing.T) {
	const lease = 3 * time.Second
	b := browser(t)
	server := redistest.Start(t)
	env := []string{endless, "LEASE=" + lease.String(), "REDIS_URL=redis://" + server.Addr}
	killed, left := start(t, env...), start(t, env...)
	first := openTab(t, b, killed, "user=ann&streams=3")
	first.shows("running", "running", "running")
	second := openTab(t, b, left, "user=ann&streams=2")
	second.shows("queued, place 1", "queued, place 2")
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// No process renews these slots, so each ends within a lease.
	s := look(t, server)
	holders, _ := s.inUse()
	for _, h := range holders {
		if h.Left > lease {
			t.Errorf("a slot is taken for %v more", h.Left)
		}
	}
	second.shows("running", "running")
	first.shows("broken", "broken", "broken")
	second.close()
	s.empty()
}

func TestReloadStormLeavesNoSlot(t *testing.T) {
	b := browser(t)
	server := redistest.Start(t)
	r := start(t, endless, "REDIS_URL=redis://"+server.Addr)
	p := openTab(t, b, r, "user=ann&streams=9")
	for range 50 {
		p.do(chromedp.Reload())
	}
	p.close()
	look(t, server).empty()
	t.Logf("%d scripts ran", server.Calls(t, "evalsha", "eval"))
	openTab(t, b, r, "user=ann&streams=9").shows("queued, place 1", "queued, place 2", "queued, place 3", "queued, place 4",
		"queued, place 5", "refused", "running", "running", "running")
}
