package browser

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
)

// Each of an operator's questions is answered in at most three presses of a key from the first page,
// by keyboard alone.
func TestFiveQuestions(t *testing.T) {
	b := browser(t)
	for _, l := range looks {
		t.Run(l.name, func(t *testing.T) {
			s := play(t)
			s.exhaust()
			stream := s.hold("acme", "bob", 1, map[string]string{"request": "req_7a31"})
			s.queue("acme", "ann", 1, map[string]string{"request": "req_7c90"})
			p := open(t, b, l, s.page)

			// Why is acme refused? Until when? Who holds the slots?
			p.shows("month 3×")
			p.fits()
			p.press("acme #refused-")
			month := time.Date(time.Now().UTC().Year(), time.Now().UTC().Month()+1, 1, 0, 0, 0, 0, time.UTC)
			until := eval[string](p, fmt.Sprintf(
				"new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' }).format(new Date(%d))", month.UnixMilli()))
			for _, want := range []string{
				"Denied until " + squeeze(until),
				"acme has used 2,000,000 of 2,000,000 tokens of month.",
				"acme holds 1 of 1 slots of streams, and 1 wait.",
				"acme: 1 of 1 slots, 1 waiting full",
				"request: req_7a31", "request: req_7c90",
			} {
				p.shows(want)
			}
			p.fits()

			// Give it 10 back.
			p.do(chromedp.Navigate(s.page))
			p.shows("month 3×")
			p.press("acme #refused-")
			p.shows("Denied until")
			p.press("#limit-month-give")
			p.shows("Give acme 10 tokens of month back?")
			p.fits()
			p.press("Give 10 back")
			p.shows("acme got 10 of month back.")
			p.fits()
			if d := s.decide(core.Charge{Policy: s.month, Key: s.key("acme"), Cost: 10}); !d.Allowed {
				t.Error("acme has not got 10 back")
			}

			// End that stream.
			p.do(chromedp.Navigate(s.page))
			p.press("acme #refused-")
			p.shows("req_7a31")
			p.press("Evict")
			p.shows("Take 1 of the slots of acme/bob at streams away? It is held for")
			p.press("Evict")
			p.shows("streams has evicted 1 of its holders and waiters.")
			select {
			case <-stream.Lost():
			case <-time.After(patience):
				t.Error("the stream has not ended")
			}
		})
	}
}

// The button on the page of a result undoes what was done.
func TestUndo(t *testing.T) {
	b, s := browser(t), play(t)
	s.exhaust()
	p := open(t, b, looks[0], s.page+"subject?key=acme")
	p.shows("2,000,000 of 2,000,000 tokens")
	p.press("#limit-month-reset")
	p.shows("Forget what acme has spent under month?")
	p.press("Reset")
	p.shows("acme has spent nothing under month.")
	p.press("Undo: charge it again")
	p.shows("acme was charged 2,000,000 of month.")
	p.press("Back to the key")
	p.shows("2,000,000 of 2,000,000 tokens")
}

// Figures change while the page is open. What has the focus keeps it, and what is typed stays.
func TestFiguresAreLive(t *testing.T) {
	b, s := browser(t), play(t)
	s.exhaust()
	p := open(t, b, looks[0], s.page)
	p.shows("month 3×")
	for range 8 {
		p.do(chromedp.KeyEvent(kb.Tab))
		if strings.Contains(eval[string](p, focused), "#refused-") {
			break
		}
	}
	s.exhaust()
	p.shows("month 7×")
	gatetest.Contains(t, eval[string](p, focused), "#refused-", "the focus is at")

	// Another key overtakes it, and the focus stays with acme.
	for range 40 {
		s.decide(core.Charge{Policy: s.search, Key: s.key("globex")})
	}
	p.shows("globex search 10×")
	gatetest.Contains(t, eval[string](p, focused), "acme #refused-", "the focus is at")

	p = open(t, b, looks[0], s.page+"subject?key=acme")
	p.shows("Denied until")
	// In one script: an update of the page may replace a node between two commands.
	eval[bool](p, "document.querySelector('#limit-month-open').click(); "+
		"document.querySelector('#limit-month-raise').value = 25; true")
	gatetest.NoError(t, s.gate.Reset(t.Context(), core.Charge{Policy: s.month, Key: s.key("acme")}))
	p.shows("The next request passes")
	const typed = "document.querySelector('#limit-month-raise').value + ' ' + document.querySelector('details[open]').id"
	gatetest.Equal(t, eval[string](p, typed), "25 limit-month-more", "typed and open")
}

// A key does no harm, whatever it holds, and the policy of the page blocks nothing of its own.
func TestHostileKey(t *testing.T) {
	b, s := browser(t), play(t)
	hostile := s.key("<script>document.title='harm'</script>", "\"><img src=x onerror=alert(1)>")
	for range 70 {
		s.decide(core.Charge{Policy: s.api, Key: hostile})
	}
	p := open(t, b, looks[0], s.page)
	p.shows("document.title='harm'")
	p.press("#refused-")
	p.shows("of 60 requests")
	p.press("#limit-api-reset")
	p.shows("Forget what <script>")
	if title := eval[string](p, "document.title"); title == "harm" {
		t.Error("a script of a key has run")
	}
	gatetest.Equal(t, eval[int](p, "document.images.length + document.scripts.length"), 1, "scripts and images")
}

// Without its script the page shows and does all but the live parts.
func TestWithoutScript(t *testing.T) {
	b, s := browser(t), play(t)
	s.exhaust()
	p := open(t, b, looks[1], "about:blank")
	p.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		if err := target.Call(ctx, "Network.enable", nil, nil); err != nil {
			return err
		}
		return target.Call(ctx, "Network.setBlockedURLs", map[string]any{"urls": []string{"*page.js"}}, nil)
	}))
	p.do(chromedp.Navigate(s.page))
	p.shows("UTC")
	p.press("acme #refused-")
	p.shows("Denied until")
	p.press("#limit-month-give")
	p.shows("Give acme 10 tokens of month back?")
	p.press("Give 10 back")
	p.shows("acme got 10 of month back.")
	p.press("Undo: charge it again")
	p.shows("acme was charged 10 of month.")
}
