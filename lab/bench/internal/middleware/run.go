package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
)

func lines() []line {
	all := append(headgate(), peers()...)
	order := []string{"net/http", "chi", "gin", "echo v4", "echo v5"}
	slices.SortStableFunc(all, func(a, b line) int {
		return slices.Index(order, a.framework) - slices.Index(order, b.framework)
	})
	return all
}

// Run measures requests that are allowed, alone and behind a server, and asks each for a refusal. The error also tells
// where this project answered wrongly; the tables are there then all the same.
func Run(ctx context.Context, plan measure.Plan) ([]report.Table, error) {
	cost, wrongAlone, err := overhead(ctx, plan)
	if err != nil {
		return nil, err
	}
	served, wrongServed, err := loopback(ctx, plan)
	if err != nil {
		return nil, err
	}
	refused, wrongRefused := refusals()
	return []report.Table{cost, served, refused}, errors.Join(wrongAlone, wrongServed, wrongRefused)
}

// request is a fresh one each time, for middleware and routers write into it.
func request() *http.Request {
	r := httptest.NewRequest("GET", "/users/1", nil)
	r.RemoteAddr = "192.0.2.1:1234"
	return r
}

// overhead drives all handlers alike, in turns with the bare ones of their frameworks.
func overhead(ctx context.Context, plan measure.Plan) (t report.Table, wrong, err error) {
	t = report.Table{
		Title: "Middleware, one request that is allowed",
		Note: "Nanoseconds and allocations of a request by one caller, without a network, and " +
			"what they are above those of the " +
			"framework's bare handler just before and after. Making the request and its recorder " +
			"is in both. All count in memory, by " +
			"the client's address, and tell the client of it as they do by default.",
		Columns: []string{"framework", "", "ns", "above bare", "allocs", "above bare", "bytes above bare"},
	}
	all := lines()
	bare := make(map[string]measure.Do)
	var contenders []measure.Contender
	for _, e := range all {
		h, err := e.build(outOfReach)
		if err != nil {
			return t, nil, fmt.Errorf("make %s of %s: %w", e.name, e.framework, err)
		}
		do := func(context.Context, int, int) (bool, error) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request())
			return w.Code == http.StatusOK, nil
		}
		if e.name == "bare" {
			bare[e.framework] = do
		}
		contenders = append(contenders, measure.Contender{Name: e.name, Kind: e.kind, Do: do})
	}
	var driver measure.Driver
	for i, e := range all {
		// The reference is the bare handler, so that both slices of a difference are neighbours.
		load := measure.Load{Workers: 1, Keys: 1, Slice: plan.Slice / 2, Untimed: true}
		results, err := driver.Rounds(ctx, plan.Rounds, load, bare[e.framework], contenders[i:i+1])
		if err != nil {
			return t, nil, err
		}
		r := &results[0]
		above := func(figure func(*measure.Sample) float64) string {
			if e.name == "bare" {
				return ""
			}
			return report.Number(r.Median(func(p *measure.Pair) float64 {
				return figure(&p.Own) - p.Ping(figure)
			}))
		}
		if _, refused, _ := r.Answered(); refused > 0 && e.kind == measure.Ours {
			wrong = fmt.Errorf("%s of %s refused %d requests", e.name, e.framework, refused)
		}
		t.Add(e.framework, r.Label(), report.Count(r.Own(measure.Each)), above(measure.Each),
			report.Number(r.Own(measure.Mallocs)), above(measure.Mallocs), above(measure.Bytes))
	}
	return t, wrong, nil
}

// refusals is what each answers to the second of two requests where one is allowed.
func refusals() (report.Table, error) {
	t := report.Table{
		Title:   "Middleware, a request that is refused",
		Note:    "The second request of a client where one an hour is allowed, with the defaults of each.",
		Columns: []string{"framework", "", "status", "Retry-After", "other headers about it", "content type", "body"},
	}
	var wrong error
	for _, e := range lines() {
		h, err := e.build(1)
		if e.name == "bare" || err != nil {
			continue
		}
		var w *httptest.ResponseRecorder
		for range 2 {
			w = httptest.NewRecorder()
			h.ServeHTTP(w, request())
		}
		head := w.Result().Header
		var others []string
		for name, values := range head {
			if strings.Contains(strings.ToLower(name), "ratelimit") || name == "Cache-Control" {
				others = append(others, code(name+": "+strings.Join(values, ", ")))
			}
		}
		slices.Sort(others)
		if e.kind == measure.Ours && (w.Code != http.StatusTooManyRequests || head.Get("Retry-After") == "") {
			wrong = fmt.Errorf("%s of %s answers a refusal with %d and Retry-After %q", e.name, e.framework, w.Code,
				head.Get("Retry-After"))
		}
		c := measure.Contender{Name: e.name, Kind: e.kind}
		t.Add(e.framework, c.Label(), fmt.Sprint(w.Code), head.Get("Retry-After"), strings.Join(others, "<br>"),
			code(head.Get("Content-Type")), code(strings.TrimSpace(w.Body.String())))
	}
	return t, wrong
}

// code is a text as it is, in a cell of a table.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + strings.NewReplacer("|", "\\|", "\n", " ").Replace(text) + "`"
}
