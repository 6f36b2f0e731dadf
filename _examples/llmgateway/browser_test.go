package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// screenshot is where TestScreenshot writes, relative to this directory:
//
//	go test -run TestScreenshot -screenshot ../../docs/llmgateway.png
var screenshot = flag.String("screenshot", "", "write a screenshot of the page to this file")

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

// tab is a browser tab with the operator's page.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func openTab(t *testing.T, browser context.Context, r *replica) tab {
	t.Helper()
	ctx, _ := chromedp.NewContext(browser)
	p := tab{t, ctx}
	p.do(chromedp.Navigate(r.operator), chromedp.WaitVisible(chromedp.CSS("form button:enabled")))
	return p
}

func (p tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	gatetest.NoError(p.t, chromedp.Do(p.ctx, actions...))
}

// start starts a stream by the form.
func (p tab) start(user, api string) {
	p.t.Helper()
	p.do(chromedp.SetValue(chromedp.CSS("[name=user]"), user), chromedp.SetValue(chromedp.CSS("[name=api]"), api),
		chromedp.Click(chromedp.CSS("form button:enabled")))
}

// text returns the text of the first element that matches, or "" if there is none.
func (p tab) text(selector string) string {
	p.t.Helper()
	text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](fmt.Sprintf(`document.querySelector(%q)?.innerText ?? ''`, selector)))
	gatetest.NoError(p.t, err)
	return text
}

// shows waits until the text of an element contains another.
func (p tab) shows(selector, want string) {
	p.t.Helper()
	var text string
	defer func() {
		if p.t.Failed() {
			p.t.Logf("%s shows %q", selector, text)
		}
	}()
	eventually(p.t, fmt.Sprintf("%s shows %q", selector, want), func() bool {
		text = p.text(selector)
		return strings.Contains(text, want)
	})
}

// left returns how much of a budget of acme the bar tells to a screen reader.
func (p tab) left(budget string) (n int) {
	p.t.Helper()
	n, err := chromedp.Run(p.ctx, chromedp.Evaluate[int](fmt.Sprintf(
		`Number(document.querySelector("[data-key=acme] [data-budget=%s] [role=meter]")?.ariaValueNow ?? -1)`, budget)))
	gatetest.NoError(p.t, err)
	return n
}

const last = "#streams li:first-child " // the last stream that the page has started

func TestPageShowsBudgetRefusalAndOutage(t *testing.T) {
	b := browser(t)
	server := redistest.Start(t)
	m, env := startModel(t)
	limits := generous
	limits.MicroDollarsPerMonth = 4000
	p := openTab(t, b, start(t, append(env, withPlan(t, limits), "REDIS_URL=redis://"+server.Addr)...))
	eventually(t, "the budget is full", func() bool { return p.left("spend") == 4000 })

	p.start("acme/ann", "chat")
	c := m.next(t)
	eventually(t, "the budget goes down while the stream runs", func() bool { n := p.left("spend"); return 0 < n && n < 4000 })
	c.say("The gate", " opens.")
	p.shows(last+".text", "The gate opens.")
	p.shows(last+".state", "running")
	p.shows("[data-key=acme] .slots", "1 of 20 streams running")
	reserved := p.left("spend")
	c.finish(100, 200) // 300 and 3000 millionths of a dollar
	p.shows(last+".state", "done")
	p.shows(last+".usage", "100 tokens in, 200 out")
	eventually(t, "the budget counts what was used", func() bool { return p.left("spend") == 700 })
	if reserved <= 700 {
		t.Errorf("%d were left while the stream ran", reserved)
	}
	p.shows("[data-key=acme] [data-budget=spend]", "$0.0007 of $0.0040 left, until ")

	p.start("acme/bob", "chat")
	p.shows(last+".state", "refused") // with the wait on the last day of the month alone
	p.shows(last+".text", `The request costs more than is left of policy "spend".`)
	gatetest.Equal(t, p.left("spend"), 700, "units left after the refusal")

	server.Kill()
	p.shows("#notice", "Redis does not answer")
}

func TestPageReadsEachFormat(t *testing.T) {
	b := browser(t)
	p := openTab(t, b, start(t, withPlan(t, generous)))
	for _, api := range []string{"chat", "responses", "messages"} {
		p.start("globex/eve", api)
		p.shows(last+".state", "done")
		p.shows(last+".usage", "24 tokens in, 89 out")
		if text := p.text(last + ".text"); !strings.HasPrefix(text, "The headgate stands") || !strings.HasSuffix(text, "begins again.") {
			t.Errorf("%s: text %q", api, text)
		}
		p.do(chromedp.Click(chromedp.CSS(last + "button")))
	}
}

func TestPageShowsQueue(t *testing.T) {
	b := browser(t)
	m, env := startModel(t)
	limits := generous
	limits.StreamsPerUser, limits.Queue = 1, 1
	p := openTab(t, b, start(t, append(env, withPlan(t, limits))...))
	p.start("acme/ann", "chat")
	first := m.next(t)
	p.shows(last+".state", "running")
	p.start("acme/ann", "chat")
	p.shows(last+".state", "queued, place 1")
	p.shows("[data-key=acme] .slots", "1 waiting")
	p.shows("[data-key=acme] .queued", "place 1 in the queue")
	p.start("acme/ann", "chat")
	p.shows(last+".text", "the queue is full")
	first.finish(1, 1)
	p.shows("#streams li:nth-child(2) .state", "running")
	p.do(chromedp.Click(chromedp.CSS("#streams li:nth-child(2) button")))
	p.shows("#streams li:nth-child(2) .state", "stopped")
	<-m.next(t).left
	p.shows("[data-key=acme] .slots", "0 of 20 streams running")
}

func TestScreenshot(t *testing.T) {
	if *screenshot == "" {
		t.Skip("-screenshot is not set")
	}
	b := browser(t)
	m, env := startModel(t)
	p := openTab(t, b, start(t, env...))
	p.do(chromedp.EmulateViewport(1280, 820), chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		still := map[string]any{"features": []map[string]string{{"name": "prefers-reduced-motion", "value": "reduce"}}}
		return target.Call(ctx, "Emulation.setEmulatedMedia", still, nil)
	}))
	answer := strings.SplitAfter("The headgate stands at the head of the canal and decides how much water enters. It opens a little in spring.", " ")
	p.start("globex/eve", "chat")
	c := m.next(t)
	c.finish(100, 300)
	p.shows(last+".state", "done")
	p.do(chromedp.Click(chromedp.CSS(last + "button")))
	p.start("acme/bob", "chat")
	c = m.next(t)
	c.say(answer...)
	c.finish(900, 420)
	p.shows(last+".state", "done")
	for range 2 {
		p.start("acme/ann", "chat")
		m.next(t).say(answer[:12]...)
	}
	p.start("acme/ann", "chat")
	p.shows(last+".state", "queued, place 1")
	p.start("globex/eve", "chat")
	p.shows(last+".state", "refused")
	image := gatetest.Must(chromedp.Run(p.ctx, chromedp.CaptureScreenshot()))(t)
	gatetest.NoError(t, os.WriteFile(*screenshot, image, 0o644))
}
