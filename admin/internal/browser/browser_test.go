package browser

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/headgate/headgate/internal/gatetest"
)

// screenshots is the folder into which TestScreenshots writes, relative to this one:
//
//	go test -run TestScreenshots -screenshots ../../../docs
var screenshots = flag.String("screenshots", "", "write screenshots of the page into this folder")

// look is a size of the window and a colour scheme.
type look struct {
	name   string
	width  int64
	height int64
	scheme string
}

var looks = []look{
	{"1280 light", 1280, 900, "light"}, {"390 dark", 390, 844, "dark"},
}

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
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
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

// tab is a tab of the browser.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func open(t *testing.T, browser context.Context, l look, address string) tab {
	t.Helper()
	ctx, _ := chromedp.NewContext(browser)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) })
	p := tab{t, ctx}
	p.do(chromedp.EmulateViewport(l.width, l.height))
	p.do(p.emulate("prefers-color-scheme", l.scheme))
	p.do(chromedp.Navigate(address))
	return p
}

func (p tab) emulate(feature, value string) chromedp.Action[chromedp.Void] {
	media := map[string]any{"features": []map[string]string{{"name": feature, "value": value}}}
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		return target.Call(ctx, "Emulation.setEmulatedMedia", media, nil)
	})
}

func (p tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	gatetest.NoError(p.t, chromedp.Do(p.ctx, actions...))
}

func eval[T any](p tab, script string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		p.t.Fatalf("%s: %v", script, err)
	}
	return v
}

// shows waits until the page shows a text. While the browser goes to a page, it cannot be asked.
func (p tab) shows(want string) {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // polls
		text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string]("document.body?.innerText ?? ''"))
		if err == nil && strings.Contains(squeeze(text), want) {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("the page does not show %q: %v\n%s", want, err, text)
		}
	}
}

// squeeze makes every run of white space one space.
func squeeze(text string) string { return strings.Join(strings.Fields(text), " ") }

const focused = `(() => { const e = document.activeElement; if (!e || e === document.body) return '';
	return (e.innerText || e.value || '') + ' #' + e.id })()`

// press goes with Tab to an element whose text and id hold a text, and presses Enter there. Where that leads
// to another page, the test waits for what that shows before the next key.
func (p tab) press(want string) {
	p.t.Helper()
	var seen []string
	for range 120 {
		p.do(chromedp.KeyEvent(kb.Tab))
		at := squeeze(eval[string](p, focused))
		if strings.Contains(at, want) {
			if ring := eval[string](p, "getComputedStyle(document.activeElement).outlineStyle"); ring == "none" {
				p.t.Errorf("no outline shows that %q has the focus", at)
			}
			p.do(chromedp.KeyEvent(kb.Enter))
			return
		}
		seen = append(seen, at)
	}
	p.t.Fatalf("no Tab leads to %q: %q", want, seen)
}

// fits reports what is wider than the window.
func (p tab) fits() {
	p.t.Helper()
	over := eval[[]string](p, `[...document.querySelectorAll('body *')]
		.filter((e) => !e.closest('.visually-hidden, .skip, svg') &&
			e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
		.map((e) => e.tagName + '.' + e.className)`)
	if len(over) > 0 {
		p.t.Errorf("%v stick out", over)
	}
}

func (p tab) screenshot(name string) {
	p.t.Helper()
	image := gatetest.Must(chromedp.Run(p.ctx, chromedp.FullScreenshot(100)))(p.t)
	gatetest.NoError(p.t, os.WriteFile(filepath.Join(*screenshots, name), image, 0o644))
}

func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("-screenshots is not set")
	}
	s := play(t)
	s.busy(62 * time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	var traffic sync.WaitGroup
	traffic.Go(func() { s.traffic(ctx) })
	defer traffic.Wait()
	defer cancel()
	b := browser(t)
	for _, shot := range []struct {
		look
		path, shows, file string
	}{
		{looks[0], "subject?key=acme", "Slots of streams", "admin.png"},
		{looks[1], "", "Refused most", "admin-dark-390.png"},
	} {
		p := open(t, b, shot.look, s.page+shot.path)
		p.shows(shot.shows)
		p.screenshot(shot.file)
	}
}
