package recipes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/plans"
)

// each runs a test in memory and on Redis.
func each(t *testing.T, f func(t *testing.T, gate *core.Gate)) {
	t.Run("memory", func(t *testing.T) { f(t, gatetest.Memory(t, core.Config{})) })
	t.Run("Redis", func(t *testing.T) {
		s := redistest.Real(t)
		f(t, gatetest.Redis(t, s.Client(t), core.Config{Prefix: s.Prefix}))
	})
}

// post sends a form, and returns the status.
func post(h http.Handler, form url.Values) int {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func tenantRequest(tenant, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r.WithContext(context.WithValue(r.Context(), tenantKey{}, tenant))
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestWrongPasswordsAtOnceAreFiveGuesses(t *testing.T) {
	each(t, func(t *testing.T, gate *core.Gate) {
		var guesses atomic.Int64
		login := Login(gate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.PostFormValue("password") == "right" {
				w.WriteHeader(http.StatusSeeOther)
				return
			}
			guesses.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
		}))
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { post(login, url.Values{"user": {"ada"}, "password": {"wrong"}}) })
		}
		all.Wait()
		gatetest.Equal(t, guesses.Load(), 5, "guesses")
		if status := post(login, url.Values{"user": {" Ada"}, "password": {"right"}}); status != 429 {
			t.Errorf("the blocked name: status %d", status)
		}
		gatetest.Equal(t, post(login, url.Values{"user": {"bob"}, "password": {"right"}}), 303, "another name: status")
	})
}

func TestSignUpCountsAccounts(t *testing.T) {
	each(t, func(t *testing.T, gate *core.Gate) {
		signUp := SignUp(gate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.PostFormValue("mail") == "" {
				w.WriteHeader(http.StatusUnprocessableEntity)
				return
			}
			w.WriteHeader(http.StatusCreated)
		}))
		for i, want := range []int{422, 422, 201, 422, 201, 201, 429} {
			form := url.Values{"mail": {"ada@example.com"}}
			if want == 422 {
				form = nil
			}
			gatetest.Equal(t, post(signUp, form), want, "form %d: status", i)
		}
	})
}

func TestPlanChangesWhileTheProgramRuns(t *testing.T) {
	each(t, func(t *testing.T, gate *core.Gate) {
		var plan atomic.Value
		plan.Store("free")
		api, book := PerPlan(gate, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
			func(context.Context, string) (string, error) { return plan.Load().(string), nil })
		defer book.Close()
		limit := func() string { return serve(api, tenantRequest("acme", "")).Header().Get("RateLimit-Policy") }
		gatetest.Contains(t, limit(), "q=60;", "free")
		plan.Store("pro")
		gatetest.NoError(t, book.Refresh(t.Context(), "acme"))
		gatetest.Contains(t, limit(), "q=600;", "pro")
	})
}

func TestLargeModelHasALimitOfItsOwn(t *testing.T) {
	each(t, func(t *testing.T, gate *core.Gate) {
		upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":10,"completion_tokens":2}}`)
		}))
		defer upstream.Close()
		to := core.Must(url.Parse(upstream.URL))
		models := PerModel(gate, to)
		ask := func(tenant, model string) int {
			body := fmt.Sprintf(`{"model":%q,"max_tokens":10,"messages":[{"role":"user","content":"hello"}]}`, model)
			return serve(models, tenantRequest(tenant, body)).Code
		}
		for i := range 6 {
			want := 200
			if i == 5 {
				want = 429
			}
			gatetest.Equal(t, ask("acme", "large"), want, "request %d for large: status", i)
		}
		gatetest.Equal(t, ask("acme", "small"), 200, "small: status")
		gatetest.Equal(t, ask("umbrella", "large"), 200, "another tenant: status")
	})
}

// sink is the ResponseWriter of a client that keeps nothing.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

func TestDownloadsCountTheirBytes(t *testing.T) {
	each(t, func(t *testing.T, gate *core.Gate) {
		day := time.Now().UTC().Truncate(24 * time.Hour)
		megabyte := make([]byte, 1<<20)
		files := Downloads(gate, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 700 {
				_, _ = w.Write(megabyte) // it cannot fail
			}
		}))
		for i, want := range []struct {
			status int
			left   string
		}{
			{0, "r=1072693248;"}, // less the cost of the running download
			{0, "r=338690048;"},  // and 700 MiB
			{429, "r=0;"},
		} {
			w := &sink{header: make(http.Header)}
			files.ServeHTTP(w, tenantRequest("acme", ""))
			if time.Now().UTC().Truncate(24*time.Hour) != day {
				t.Skip("the day has ended meanwhile")
			}
			limits, policy := w.header.Get("RateLimit"), w.header.Get("RateLimit-Policy")
			if w.status != want.status || !strings.Contains(limits, want.left) || !strings.Contains(policy, `qu="content-bytes"`) {
				t.Errorf("download %d: status %d, RateLimit %s, want %s; RateLimit-Policy %s", i, w.status, limits, want.left, policy)
			}
		}
	})
}

func TestHourlyRunsOnce(t *testing.T) {
	each(t, func(t *testing.T, gate *core.Gate) {
		hour := time.Now().Truncate(time.Hour)
		runs, fail := 0, errors.New("failed")
		result := fail
		replica := Hourly(gate, func(context.Context) error { runs++; return result })
		gatetest.Is(t, replica(t.Context()), fail, "the job that fails")
		result = nil
		other := Hourly(gate, func(context.Context) error { runs++; return nil })
		for range 3 {
			gatetest.Worked(t, errors.Join(replica(t.Context()), other(t.Context())))
		}
		if !time.Now().Truncate(time.Hour).Equal(hour) {
			t.Skip("the hour has ended meanwhile")
		}
		gatetest.Equal(t, runs, 2, "runs")
	})
}

// A retry gets the payment's number again, another tenant a payment of its own, and a payment that was
// declined stays so.
func TestPaymentsAreAnsweredAgain(t *testing.T) {
	each(t, func(t *testing.T, gate *core.Gate) {
		made := 0
		h := Payments(gate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			made++
			if r.Header.Get("Idempotency-Key") == "poor" {
				http.Error(w, "declined", http.StatusPaymentRequired)
				return
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, "payment ", made)
		}), []byte("0123456789abcdef"))
		for _, step := range []struct{ tenant, id, body, want string }{
			{"acme", "a", "5 EUR", "201 payment 1"}, {"acme", "a", "5 EUR", "201 payment 1"}, {"acme", "a", "6 EUR", "422"},
			{"other", "a", "5 EUR", "201 payment 2"}, {"acme", "poor", "9 EUR", "402 declined"}, {"acme", "poor", "9 EUR", "402 declined"},
		} {
			r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(step.body))
			r.Header.Set("Idempotency-Key", step.id)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, step.tenant)))
			if got := fmt.Sprint(w.Code, " ", w.Body); !strings.HasPrefix(got, step.want) {
				t.Errorf("%v: %s", step, got)
			}
		}
		gatetest.Equal(t, made, 3, "payments")
	})
}

func TestMessagesAreLimited(t *testing.T) {
	each(t, func(t *testing.T, gate *core.Gate) {
		handled := make(chan struct{}, 15)
		messages := Messages(gate, func([]byte) { handled <- struct{}{} })
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			messages.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, "acme")))
		}))
		defer server.Close()
		dial := func() (*websocket.Conn, int) {
			c, response, err := websocket.Dial(t.Context(), server.URL, nil)
			if err != nil && response == nil {
				t.Fatal(err)
			}
			return c, response.StatusCode
		}
		var open []*websocket.Conn
		for range 3 {
			c, status := dial()
			gatetest.Need(t, status, http.StatusSwitchingProtocols, "status")
			defer c.CloseNow()
			open = append(open, c)
		}
		if _, status := dial(); status != 429 {
			t.Errorf("a fourth socket: status %d", status)
		}
		start := time.Now()
		for i := range 15 {
			gatetest.NoError(t, open[i%3].Write(t.Context(), websocket.MessageText, []byte("hello")))
		}
		for n := int64(1); n <= 15; n++ {
			<-handled
			if most := 10 + 5*int64(time.Since(start)/time.Second+1); n > most {
				t.Fatalf("%d messages, at most %d", n, most)
			}
		}
	})
}

func TestQueueTellsThePlace(t *testing.T) {
	each(t, func(t *testing.T, gate *core.Gate) {
		release := make(chan struct{})
		queue := Queue(gate, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "event: started\n\n")
			_ = http.NewResponseController(w).Flush()
			<-release
		})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			queue.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, "acme")))
		}))
		defer server.Close()
		open := func() *bufio.Reader {
			response := gatetest.Must(http.Get(server.URL))(t)
			t.Cleanup(func() { response.Body.Close() })
			return bufio.NewReader(response.Body)
		}
		expect := func(r *bufio.Reader, want string) {
			t.Helper()
			if line, err := r.ReadString('\n'); line != want+"\n" {
				t.Errorf("got %q, %v, want %q", line, err, want)
			}
		}
		for range 2 {
			expect(open(), "event: started")
		}
		third := open()
		expect(third, "event: queued")
		expect(third, "data: 0")
		expect(third, "")
		close(release)
		expect(third, "event: started")
	})
}

func TestSoftLimit(t *testing.T) {
	each(t, func(t *testing.T, gate *core.Gate) {
		text := func(s string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s) })
		}
		h := SoftLimit(gate, text("whole"), text("cheap"))
		answers := make(map[string]int)
		for range 210 {
			w := serve(h, httptest.NewRequest(http.MethodGet, "/", nil))
			if w.Code == 429 {
				answers["429"]++
				continue
			}
			answers[w.Body.String()]++
		}
		if answers["whole"] != 100 || answers["cheap"] != 100 || answers["429"] != 10 {
			t.Errorf("answers %v", answers)
		}
	})
}

// The months that have ended are billed as they were admitted, each tenant's from its own day on.
func TestBilledMonths(t *testing.T) {
	t.Parallel()
	clock := core.NewManualClock(time.Date(2028, 1, 30, 12, 0, 0, 0, time.UTC))
	gate := gatetest.Memory(t, core.Config{Clock: clock.Now})
	anchorOf := func(tenant string) time.Time { return time.Date(2027, 12, 27+len(tenant), 9, 0, 0, 0, time.UTC) }
	book := core.Must(plans.New(plans.Config{
		Set: core.Must(plans.ParseSet([]byte("default: free\nplans: {free: {limits: " +
			"{month: {limit: 300, calendar: month, in: UTC, anchor: subscription}}}}"))),
		Subscription: func(_ context.Context, tenant string) (plans.Subscription, error) {
			return plans.Subscription{Anchor: anchorOf(tenant)}, nil
		},
		Clock: clock.Now,
	}))
	t.Cleanup(book.Close)
	h, bill := Billed(gate, book, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), clock.Now)
	type month struct {
		tenant string
		begins time.Time
	}
	admitted := make(map[month]int64)
	for n := range 4000 {
		clock.Advance(time.Duration(n%40) * time.Minute)
		tenant := strings.Repeat("t", 1+n%4)
		if serve(h, tenantRequest(tenant, "")).Code == http.StatusOK {
			calendar := core.Calendar{Limit: 1, Every: core.PeriodMonth, In: time.UTC, Anchor: anchorOf(tenant)}
			period := core.Must(calendar.Period(clock.Now()))
			admitted[month{tenant, period.From}]++
		}
	}
	if len(admitted) < 8 {
		t.Errorf("%d months", len(admitted))
	}
	for m, want := range admitted {
		if clock.Now().Sub(m.begins) > 70*24*time.Hour {
			continue // it may be forgotten
		}
		if got := gatetest.Must(bill(t.Context(), m.tenant, m.begins))(t); got != want || want > 300 {
			t.Errorf("%v: %d are billed, %d were admitted", m, got, want)
		}
	}
	gatetest.NoError(t, book.SetOverride(t.Context(), "t", plans.Override{Limits: map[string]core.Algorithm{"month": core.DenyAll{}}}))
	if got, err := bill(t.Context(), "t", clock.Now()); err == nil {
		t.Errorf("%d are billed to a tenant whose plan has no month", got)
	}
}
