package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/outbound"
)

// accounts makes an upstream of a pool for each algorithm, on one server, with a credential for
// each.
func accounts(t *testing.T, g *core.Gate, algorithms ...core.Algorithm) []outbound.Upstream {
	t.Helper()
	b := base(t)
	var all []outbound.Upstream
	for i, a := range algorithms {
		name := string(rune('a' + i))
		all = append(all, outbound.Upstream{
			Name: name,
			Transport: transport(t, outbound.Config{Base: b, Gate: g, Rules: []outbound.Rule{
				{Policy: gatetest.Limited(t, "requests", a), Key: outbound.ByCredential},
			}}),
			Rewrite: func(r *http.Request) { r.Header.Set("X-Api-Key", name) },
		})
	}
	return all
}

func pool(t testing.TB, cfg outbound.PoolConfig) *outbound.Pool {
	t.Helper()
	p := core.Must(outbound.NewPool(cfg))
	return p
}

// keys is a server that tells its callers their credential.
func keys(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, _ = fmt.Fprintf(w, "%s%s", r.Header.Get("X-Api-Key"), body)
}

// ask sends a request with a body and returns what the response says.
func ask(t testing.TB, rt http.RoundTripper, url, body string, header ...string) (string, error) {
	t.Helper()
	r := gatetest.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body)))(t)
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	res, err := rt.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	if res.Request != r || r.Header.Get("X-Api-Key") != "" {
		t.Errorf("the request was changed: %v", r.Header)
	}
	text, err := io.ReadAll(res.Body)
	return fmt.Sprint(string(text), res.StatusCode), err
}

// A request goes to the first upstream with room, and if there is none to the one that has room
// first.
func TestPoolTakesTheFirstWithRoom(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate) {
		u := serve(t, keys)
		ups := accounts(t, g, core.TokenBucket{Rate: 1, Per: time.Hour, Burst: 2}, core.TokenBucket{Rate: 5, Per: time.Second, Burst: 1},
			core.TokenBucket{Rate: 1, Per: time.Minute, Burst: 1})
		p := pool(t, outbound.PoolConfig{Upstreams: ups, MaxWait: 10 * time.Second})
		for i, want := range []string{"a!200", "a!200", "b!200", "c!200"} {
			if got, err := ask(t, p, u.URL, "!"); got != want || err != nil {
				t.Fatalf("request %d: %q, %v, want %q", i, got, err, want)
			}
		}
		if got, err := ask(t, p, u.URL, "!"); got != "b!200" || err != nil {
			t.Errorf("%q, %v, and b has room first", got, err)
		}
		at := pool(t, outbound.PoolConfig{Upstreams: ups[:1], MaxWait: time.Second})
		_, err := ask(t, at, u.URL, "!")
		var busy *outbound.PoolBusyError
		if !errors.As(err, &busy) || !errors.Is(err, outbound.ErrBusy) || busy.First != "a" || busy.Busy["a"].After < 50*time.Minute {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		none := pool(t, outbound.PoolConfig{Upstreams: []outbound.Upstream{ups[2], ups[0]}, MaxWait: time.Hour})
		body := newCloser("x")
		r := request(t, ctx, u.URL)
		r.Body = body
		_, err = none.RoundTrip(r)
		if !errors.As(err, &busy) || busy.First != "c" || len(busy.Busy) != 2 || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			t.Errorf("%v", err)
		}
		if !body.closed.Load() {
			t.Error("the body was left open")
		}
	})
}

// Requests with one sticky value go to one upstream while it has room, the values spread over all
// upstreams, and those of an upstream that is gone spread over the others.
func TestPoolSticks(t *testing.T) {
	g := gatetest.Memory(t, core.Config{})
	u := serve(t, keys)
	many := core.PerHour(1_000_000)
	ups := accounts(t, g, many, many, many, many)
	sticky := func(r *http.Request) string { return r.Header.Get("X-Conversation") }
	all := pool(t, outbound.PoolConfig{Upstreams: ups, Sticky: sticky})
	fewer := pool(t, outbound.PoolConfig{Upstreams: ups[:3], Sticky: sticky})
	got := make(map[string]int)
	for i := range 400 {
		c := fmt.Sprintf("X-Conversation: %d", i)
		first, err := ask(t, all, u.URL, "", c)
		if again, _ := ask(t, all, u.URL, "", c); again != first || err != nil {
			t.Fatalf("%q, then %q, %v", first, again, err)
		}
		got[first]++
		if left, _ := ask(t, fewer, u.URL, "", c); left != first && first != "d200" {
			t.Errorf("%q went from %q to %q", c, first, left)
		}
	}
	for name, n := range got {
		if n < 60 || n > 140 {
			t.Errorf("%d of 400 went to %s: %v", n, name, got)
		}
	}
	if text, err := ask(t, all, u.URL, ""); text != "a200" || err != nil {
		t.Errorf("without a value: %q, %v", text, err)
	}
}

// A refusal is returned, or sent to the next upstream if the pool is told to and the body can be
// had again.
func TestPoolRetries(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate) {
		var refuse atomic.Value
		u := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if key := r.Header.Get("X-Api-Key"); strings.Contains(refuse.Load().(string), key) {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusTooManyRequests)
			}
			keys(w, r)
		})
		many := core.PerHour(1_000_000)
		at := func(retries int) *outbound.Pool {
			ups := accounts(t, g, many, many, many)
			for i := range ups { // accounts that no request has used before
				name := fmt.Sprint(ups[i].Name, retries)
				ups[i].Rewrite = func(r *http.Request) { r.Header.Set("X-Api-Key", name) }
			}
			return pool(t, outbound.PoolConfig{Upstreams: ups, Retry: outbound.Retry{Max: retries}})
		}
		refuse.Store("a0 a1 b1 a2 b2 a3 b3 c3")
		for retries, want := range []string{"a0!429", "b1!429", "c2!200"} {
			if text, err := ask(t, at(retries), u.URL, "!"); text != want || err != nil {
				t.Errorf("with %d retries: %q, %v, want %q", retries, text, err, want)
			}
		}
		p := at(3)
		again := request(t, t.Context(), u.URL)
		var body *closer
		again.GetBody = func() (io.ReadCloser, error) {
			body = newCloser("!")
			return body, nil
		}
		again.Body, _ = again.GetBody()
		if res, err := p.RoundTrip(again); err != nil || res.StatusCode != http.StatusTooManyRequests || !body.closed.Load() {
			t.Errorf("all refuse: %v, %v, and a body that no upstream reads is closed: %v", res, err, body.closed.Load())
		} else {
			_ = res.Body.Close()
		}
		gatetest.Is(t, gatetest.Err(ask(t, p, u.URL, "!")), outbound.ErrBusy, "all cool")
		r := request(t, t.Context(), u.URL)
		r.Body = newCloser("!") // without GetBody
		refuse.Store("a4")
		if res, err := at(4).RoundTrip(r); err != nil || res.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%v, %v", res, err)
		} else {
			_ = res.Body.Close()
		}
	})
}

// A Pool leaves an upstream that refuses the request alone, does not go back to it with the request,
// and asks it again with the next one.
func TestPoolLeavesARefusalOfOneRequest(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"costs too much":     refuse(402, tooLarge),
		"is above the limit": refuse(429, tooLong),
		"needs a resource":   refuse(403, noSearch, searchHeader()...),
	} {
		t.Run(name, func(t *testing.T) {
			var asked strings.Builder
			u := serve(t, func(w http.ResponseWriter, r *http.Request) {
				key := r.Header.Get("X-Api-Key")
				if asked.WriteString(key); r.Header.Get("X-Refuse") != "" && strings.Contains(r.Header.Get("X-Refuse"), key) {
					answer(w)
				}
			})
			g := gatetest.Memory(t, core.Config{})
			p := pool(t, outbound.PoolConfig{
				Upstreams: accounts(t, g, core.PerHour(100), core.TokenBucket{Rate: 10, Per: time.Second, Burst: 1}),
				MaxWait:   30 * time.Second, Retry: outbound.Retry{Max: 5},
			})
			for _, c := range []struct {
				refuse string
				status string
			}{
				{"a", "200"}, // and b has no more room for a while
				{"ab", "4"},
				{"", "200"},
			} {
				text, err := ask(t, p, u.URL, "", "X-Refuse: "+c.refuse)
				if status := text[max(0, len(text)-3):]; !strings.HasPrefix(status, c.status) || err != nil {
					t.Errorf("%q refuse: %q, %v", c.refuse, text, err)
				}
			}
			gatetest.Equal(t, asked.String(), "ab"+"ab"+"a", "asked")
		})
	}
}

func TestPoolConfig(t *testing.T) {
	g := gatetest.Memory(t, core.Config{})
	tr := transport(t, outbound.Config{Gate: g})
	for _, c := range []struct {
		cfg  outbound.PoolConfig
		want []string
	}{
		{outbound.PoolConfig{}, []string{"Upstreams is empty"}},
		{outbound.PoolConfig{
			Upstreams: []outbound.Upstream{{Name: "a", Transport: tr}, {Name: "a", Transport: tr}, {Transport: new(outbound.Transport)}},
			MaxWait:   -1, Retry: outbound.Retry{Max: 11},
		}, []string{"Upstreams[1].Name", "Upstreams[2].Name", "Upstreams[2].Transport", "MaxWait", "Retry.Max"}},
	} {
		_, err := outbound.NewPool(c.cfg)
		for _, w := range c.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%v does not name %s", err, w)
			}
		}
	}
	pool(t, outbound.PoolConfig{Upstreams: []outbound.Upstream{{Name: "a", Transport: tr}}}).CloseIdleConnections()
	if _, err := new(outbound.Pool).RoundTrip(request(t, t.Context(), "http://x")); err == nil {
		t.Error("the zero Pool sends")
	}
	p := pool(t, outbound.PoolConfig{Upstreams: []outbound.Upstream{{Name: "a", Transport: tr}}})
	gatetest.Is(t, gatetest.Err(p.RoundTrip(request(t, t.Context(), "http:///x"))), core.ErrKey, "no host")
}

// An error says the same whenever it is asked.
func TestPoolBusyErrorHasOneText(t *testing.T) {
	down := errors.New("down")
	busy := &outbound.PoolBusyError{
		Busy:      map[string]*outbound.BusyError{"x": {Rule: "requests", After: time.Second}},
		Unreached: map[string]error{"a": down, "b": down, "c": down, "d": down},
		First:     "x",
	}
	const end = "; a cannot be reached: down; b cannot be reached: down; c cannot be reached: down; d cannot be reached: down"
	for range 20 {
		if text := busy.Error(); !strings.HasSuffix(text, end) {
			t.Fatal(text)
		}
	}
}

// unreachable returns the address of a server that is gone.
func unreachable(t *testing.T) string {
	l := gatetest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// An upstream to which no connection can be made is left alone for a second.
func TestPoolLeavesAnUpstreamThatIsDownAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gatetest.Memory(t, core.Config{})
		dials := 0
		dead := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			dials++
			return nil, errors.New("refused")
		}}
		live := roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
		})
		ups := []outbound.Upstream{
			{Name: "dead", Transport: transport(t, outbound.Config{Gate: g, Base: dead})},
			{Name: "live", Transport: transport(t, outbound.Config{Gate: g, Base: live})},
		}
		p, alone := pool(t, outbound.PoolConfig{Upstreams: ups}), pool(t, outbound.PoolConfig{Upstreams: ups[:1]})
		for range 2 {
			before := dials
			for range 5 {
				if _, err := get(t, p, "http://example.com"); err != nil {
					t.Error(err)
				}
			}
			for range 5 {
				if _, err := get(t, alone, "http://example.com"); err == nil || !strings.Contains(err.Error(), "refused") {
					t.Error(err)
				}
			}
			if dials != before+2 { // one of each Pool
				t.Errorf("%d dials", dials-before)
			}
			time.Sleep(time.Second)
		}
	})
}

// A request goes on from upstreams that cannot be reached, if its body can be had anew.
func TestPoolPassesOverUpstreamsThatAreDown(t *testing.T) {
	g := gatetest.Memory(t, core.Config{})
	u := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	live := strings.TrimPrefix(u.URL, "http://")
	at := func(name, host string, limit int64) outbound.Upstream {
		rule := outbound.Rule{Policy: gatetest.Limited(t, name, gatetest.Frozen(limit)), Key: outbound.ByHost}
		return outbound.Upstream{
			Name:      name,
			Transport: transport(t, outbound.Config{Base: base(t), Gate: g, Rules: []outbound.Rule{rule}}),
			Rewrite:   func(r *http.Request) { r.URL.Host, r.Host = host, host },
		}
	}
	post := func(p *outbound.Pool, body io.Reader) (string, error) {
		r := gatetest.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://example.com/", body))(t)
		res, err := p.RoundTrip(r)
		if err != nil {
			return "", err
		}
		text, _ := io.ReadAll(res.Body)
		return string(text), res.Body.Close()
	}
	downA, downB := at("down-a", unreachable(t), 10), at("down-b", unreachable(t), 10)
	p := pool(t, outbound.PoolConfig{
		Upstreams: []outbound.Upstream{downA, downB, at("live", live, 1)}, MaxWait: time.Millisecond,
	})
	if text, err := post(p, strings.NewReader("text")); text != "text" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	var busy *outbound.PoolBusyError
	if _, err := post(p, strings.NewReader("text")); !errors.As(err, &busy) || busy.First != "live" ||
		len(busy.Unreached) != 2 || len(busy.Busy) != 1 {
		t.Errorf("%v", err)
	}
	var dial *net.OpError
	fresh := pool(t, outbound.PoolConfig{Upstreams: []outbound.Upstream{downA, downB}})
	if _, err := post(fresh, newCloser("stream")); !errors.As(err, &dial) || errors.Is(err, outbound.ErrBusy) {
		t.Errorf("a body that cannot be had anew: %v", err)
	}
	none := pool(t, outbound.PoolConfig{Upstreams: []outbound.Upstream{downA, downB}})
	if _, err := post(none, strings.NewReader("text")); !errors.As(err, &dial) || errors.Is(err, outbound.ErrBusy) {
		t.Errorf("no upstream: %v", err)
	}
}
