package llm_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

// retryHeaders returns Retry-After, Retry-After-Ms and X-Should-Retry.
func retryHeaders(h http.Header) string {
	var values []string
	for _, name := range []string{"Retry-After", "Retry-After-Ms", "X-Should-Retry"} {
		values = append(values, strings.Join(h.Values(name), " | "))
	}
	return strings.Join(values, ", ")
}

// modelDialects returns the dialects of model APIs.
func modelDialects(within time.Duration) []nethttp.Dialect {
	return []nethttp.Dialect{llm.OpenAI{RetryWithin: within}, llm.Anthropic{RetryWithin: within}}
}

// oneEvery allows one request, and the next after wait.
func oneEvery(wait time.Duration) core.Algorithm {
	if wait == core.Never {
		return core.TokenBucket{Burst: 1}
	}
	return core.TokenBucket{Rate: 1, Per: wait, Burst: 1}
}

// A client of a model API is told to retry only within RetryWithin, and how many milliseconds to
// wait below a second.
func TestRetryWithin(t *testing.T) {
	for _, tt := range []struct {
		name         string
		within, wait time.Duration
		want         string
	}{
		{"a microsecond", 0, time.Microsecond, "1, 1, "},
		{"milliseconds", 0, 250 * time.Millisecond, "1, 250, "},
		{"milliseconds are rounded up", 0, 250*time.Millisecond + time.Microsecond, "1, 251, "},
		{"just below a second", 0, time.Second - time.Microsecond, "1, 1000, "},
		{"a second", 0, time.Second, "1, , "},
		{"above a second", 0, 1100 * time.Millisecond, "2, , "},
		{"the default", 0, time.Minute, "60, , "},
		{"above the default", 0, time.Minute + time.Microsecond, "61, , false"},
		{"the limit", time.Hour, time.Hour, "3600, , "},
		{"above the limit", time.Hour, time.Hour + time.Microsecond, "3601, , false"},
		{"above a short limit", 100 * time.Millisecond, 101 * time.Millisecond, "1, 101, false"},
		{"weeks", 0, 28 * 24 * time.Hour, ", , false"},
		{"never", 0, core.Never, ", , false"},
		{"never, with a long limit", core.Never - 1, core.Never, ", , false"},
	} {
		for _, dialect := range modelDialects(tt.within) {
			t.Run(fmt.Sprintf("%s, %T", tt.name, dialect), func(t *testing.T) {
				h := guard(t, nethttp.Config{
					Gate: memory(t, aClock()), Dialect: dialect,
					Rules: rules(t, core.PolicyConfig{Name: "p", Algorithm: oneEvery(tt.wait)}),
				}).Handler(http.HandlerFunc(ok))
				if r := get(h); r.StatusCode != 200 || retryHeaders(r.Header) != ", , " {
					t.Errorf("%d, %s", r.StatusCode, retryHeaders(r.Header))
				}
				if r := get(h); r.StatusCode != 429 || retryHeaders(r.Header) != tt.want {
					t.Errorf("%d, %s, want %s", r.StatusCode, retryHeaders(r.Header), tt.want)
				}
			})
		}
	}
}

// Other dialects tell a client nothing but the wait, or that no wait helps.
func TestOtherDialectsSteerNoRetries(t *testing.T) {
	for _, dialect := range []nethttp.Dialect{nil, nethttp.Legacy{Epoch: true}, nethttp.Legacy{}, nethttp.None{}} {
		for wait, want := range map[time.Duration]string{
			250 * time.Millisecond: "1, , ", time.Hour: "3600, , ", core.Never: ", , false",
		} {
			h := guard(t, nethttp.Config{
				Gate: memory(t, aClock()), Dialect: dialect, Rules: rules(t, core.PolicyConfig{Name: "p", Algorithm: oneEvery(wait)}),
			}).Handler(http.HandlerFunc(ok))
			get(h)
			if got := retryHeaders(get(h).Header); got != want {
				t.Errorf("%v, %v: %s, want %s", dialect, wait, got, want)
			}
		}
	}
}

// What the handlers around a guard have set stays if it is stricter.
func TestStricterRetryStays(t *testing.T) {
	for _, tt := range []struct {
		name  string
		outer []string // Retry-After, Retry-After-Ms, X-Should-Retry
		wait  time.Duration
		want  string
	}{
		{"a longer wait", []string{"5", "", ""}, 2 * time.Second, "5, , "},
		{"a shorter wait", []string{"2", "", ""}, 5 * time.Second, "5, , "},
		{"a longer wait than milliseconds", []string{"5", "", ""}, 250 * time.Millisecond, "5, , "},
		{"a second, and milliseconds", []string{"1", "", ""}, 250 * time.Millisecond, "1, , "},
		{"more milliseconds", []string{"1", "800", ""}, 250 * time.Millisecond, "1, 800, "},
		{"fewer milliseconds", []string{"1", "100", ""}, 250 * time.Millisecond, "1, 250, "},
		{"milliseconds alone", []string{"", "800", ""}, 250 * time.Millisecond, "1, 800, "},
		{"milliseconds, and a longer wait", []string{"1", "800", ""}, 2 * time.Second, "2, , "},
		{"milliseconds that contradict the seconds", []string{"5", "300", ""}, 250 * time.Millisecond, "5, , "},
		{"milliseconds that refine the seconds", []string{"5", "4500", ""}, 2 * time.Second, "5, 4500, "},
		{"do not retry", []string{"", "", "false"}, 2 * time.Second, "2, , false"},
		{"retry, but not so soon", []string{"", "", "true"}, 2 * time.Minute, "120, , false"},
		{"a wait that is too long", []string{"61", "", ""}, 2 * time.Second, "61, , false"},
		{"a wait, and never", []string{"5", "", ""}, core.Never, "5, , false"},
		{"a date", []string{"Fri, 31 Dec 1999 23:59:59 GMT", "", ""}, 2 * time.Second, "2, , "},
		{"a huge number", []string{"9223372036854775807", "", ""}, 2 * time.Second, "9223372036854775807, , false"},
		{"a negative number", []string{"-5", "-5", ""}, 250 * time.Millisecond, "1, 250, "},
	} {
		for _, dialect := range modelDialects(0) {
			t.Run(fmt.Sprintf("%s, %T", tt.name, dialect), func(t *testing.T) {
				h := guard(t, nethttp.Config{
					Gate: memory(t, aClock()), Dialect: dialect, Rules: rules(t, core.PolicyConfig{Name: "p", Algorithm: oneEvery(tt.wait)}),
				}).Handler(http.HandlerFunc(ok))
				get(h)
				r := get(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					for i, name := range []string{"Retry-After", "Retry-After-Ms", "X-Should-Retry"} {
						if tt.outer[i] != "" {
							w.Header().Set(name, tt.outer[i])
						}
					}
					h.ServeHTTP(w, r)
				}))
				if got := retryHeaders(r.Header); got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
			})
		}
	}
}

// Refusals that are not denials tell SDKs to give up only if no retry helps and the SDKs would try.
func TestRetriesOfOtherRefusals(t *testing.T) {
	c := aClock()
	gate := memory(t, c)
	failing := func(err error) keyfunc.Func {
		return func(*http.Request) (string, error) { return "", err }
	}
	limit := core.PolicyConfig{Name: "p", Algorithm: core.PerHour(100)}
	closed := core.PolicyConfig{Name: "p", Algorithm: core.PerHour(100), OnFailure: core.FailClosed}
	block := func(hide bool) []nethttp.BlockRule {
		return []nethttp.BlockRule{{
			Policy: policyOf(t, core.PolicyConfig{Name: "bans", Algorithm: core.Block{Strikes: 1, Within: time.Second, For: 5 * time.Second}}),
			Key:    keyfunc.RemoteIP(), Strikes: nethttp.StrikeOn(http.StatusOK), HideRetryAfter: hide,
		}}
	}
	free := nethttp.Config{Gate: gate, Rules: rules(t, core.PolicyConfig{Name: "free", Algorithm: core.Unlimited{}})}
	for _, tt := range []struct {
		name   string
		cfg    nethttp.Config
		replay *nethttp.ReplayConfig
		before int
		status int
		want   string
	}{
		{"no key", nethttp.Config{Gate: gate, Rules: []nethttp.Rule{{Policy: policyOf(t, limit), Key: failing(keyfunc.ErrNoKey)}}}, nil, 0, 400, ", , "},
		{"a failing key", nethttp.Config{Gate: gate, Rules: []nethttp.Rule{{Policy: policyOf(t, limit), Key: failing(io.ErrUnexpectedEOF)}}}, nil, 0, 500, ", , "},
		{"denied", nethttp.Config{Gate: gate, Rules: rules(t, limit), Deny: func(*http.Request) bool { return true }}, nil, 0, 403, ", , "},
		{"Redis down", nethttp.Config{Gate: dead(t), Rules: rules(t, closed)}, nil, 0, 503, "1, , "},
		{"blocked", nethttp.Config{Gate: memory(t, c), Blocks: block(false)}, nil, 1, 429, "5, , "},
		{"blocked for a hidden time", nethttp.Config{Gate: memory(t, c), Blocks: block(true)}, nil, 1, 429, ", , false"},
		{"handled", free, &nethttp.ReplayConfig{Once: newOnce(t, memory(t, c)), ID: keyfunc.RemoteIP()}, 1, 409, ", , false"},
		{"handled, which is well", free, &nethttp.ReplayConfig{Once: newOnce(t, memory(t, c)), ID: keyfunc.RemoteIP(), HandledStatus: 204}, 1, 204, ", , "},
	} {
		for i, dialect := range modelDialects(0) {
			t.Run(fmt.Sprintf("%s, %T", tt.name, dialect), func(t *testing.T) {
				cfg := tt.cfg
				cfg.Dialect = dialect
				var admitter nethttp.Admitter = guard(t, cfg)
				if tt.replay != nil {
					admitter = replay(t, guard(t, cfg), *tt.replay)
				}
				h := admitter.Handler(http.HandlerFunc(ok))
				from := func(r *http.Request) { r.RemoteAddr = []string{"192.0.2.1:1", "192.0.2.2:1"}[i] }
				for range tt.before {
					get(h, from)
				}
				if r := get(h, from); r.StatusCode != dialect.Status(tt.status) || retryHeaders(r.Header) != tt.want {
					t.Errorf("%d, %s, want %d, %s", r.StatusCode, retryHeaders(r.Header), tt.status, tt.want)
				}
			})
		}
	}
}

// A full queue asks for a retry, because slots end soon.
func TestRetryOfFullCap(t *testing.T) {
	r := get(crowded(t, nethttp.Config{
		Dialect: llm.OpenAI{}, Slot: &nethttp.Slot{MaxWait: time.Nanosecond},
	}, "ann", "ann"), as("ann"))
	wait, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if err != nil || r.StatusCode != 429 || wait < 1 || wait > 60 ||
		r.Header.Get("Retry-After-Ms")+r.Header.Get("X-Should-Retry") != "" {
		t.Errorf("%d, %s", r.StatusCode, retryHeaders(r.Header))
	}
	if got := modelLimits(t, r); got["remaining-requests"] != "8" {
		t.Errorf("%v", got)
	}
}
