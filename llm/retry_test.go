package llm_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

var retryNames = []string{"Retry-After", "Retry-After-Ms", "X-Should-Retry"}

// retryHeaders returns the values of retryNames.
func retryHeaders(h http.Header) string {
	var values []string
	for _, name := range retryNames {
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

// A client of a model API is told to retry only within RetryWithin, and how many milliseconds to
// wait below a second. What the handlers around a guard have set stays if it is stricter.
func TestRetryWithin(t *testing.T) {
	const quarter = 250 * time.Millisecond
	for _, tt := range []struct {
		name         string
		within, wait time.Duration
		outer        string // Retry-After, Retry-After-Ms, X-Should-Retry
		want         string
	}{
		{"a microsecond", 0, time.Microsecond, "", "1, 1, "},
		{"milliseconds", 0, quarter, "", "1, 250, "},
		{"milliseconds are rounded up", 0, quarter + time.Microsecond, "", "1, 251, "},
		{"just below a second", 0, time.Second - time.Microsecond, "", "1, 1000, "},
		{"a second", 0, time.Second, "", "1, , "},
		{"above a second", 0, 1100 * time.Millisecond, "", "2, , "},
		{"the default", 0, time.Minute, "", "60, , "},
		{"above the default", 0, time.Minute + time.Microsecond, "", "61, , false"},
		{"the limit", time.Hour, time.Hour, "", "3600, , "},
		{"above the limit", time.Hour, time.Hour + time.Microsecond, "", "3601, , false"},
		{"above a short limit", 100 * time.Millisecond, 101 * time.Millisecond, "", "1, 101, false"},
		{"weeks", 0, 28 * 24 * time.Hour, "", ", , false"},
		{"never", 0, core.Never, "", ", , false"},
		{"never, with a long limit", core.Never - 1, core.Never, "", ", , false"},
		{"a longer wait", 0, 2 * time.Second, "5, , ", "5, , "},
		{"a shorter wait", 0, 5 * time.Second, "2, , ", "5, , "},
		{"a longer wait than milliseconds", 0, quarter, "5, , ", "5, , "},
		{"a second, and milliseconds", 0, quarter, "1, , ", "1, , "},
		{"more milliseconds", 0, quarter, "1, 800, ", "1, 800, "},
		{"fewer milliseconds", 0, quarter, "1, 100, ", "1, 250, "},
		{"milliseconds alone", 0, quarter, ", 800, ", "1, 800, "},
		{"milliseconds, and a longer wait", 0, 2 * time.Second, "1, 800, ", "2, , "},
		{"milliseconds that contradict the seconds", 0, quarter, "5, 300, ", "5, , "},
		{"milliseconds that refine the seconds", 0, 2 * time.Second, "5, 4500, ", "5, 4500, "},
		{"do not retry", 0, 2 * time.Second, ", , false", "2, , false"},
		{"retry, but not so soon", 0, 2 * time.Minute, ", , true", "120, , false"},
		{"a wait that is too long", 0, 2 * time.Second, "61, , ", "61, , false"},
		{"a wait, and never", 0, core.Never, "5, , ", "5, , false"},
		{"a date", 0, 2 * time.Second, "31 Dec 1999 23:59:59 GMT, , ", "2, , "},
		{"a huge number", 0, 2 * time.Second, "9223372036854775807, , ", "9223372036854775807, , false"},
		{"a negative number", 0, quarter, "-5, -5, ", "1, 250, "},
	} {
		for _, dialect := range modelDialects(tt.within) {
			t.Run(fmt.Sprintf("%s, %T", tt.name, dialect), func(t *testing.T) {
				h := guard(t, nethttp.Config{
					Gate: memory(t, aClock()), Dialect: dialect, Rules: rules(t, core.PolicyConfig{Name: "p", Algorithm: oneEvery(tt.wait)}),
				}).Handler(http.HandlerFunc(ok))
				if r := get(h); r.StatusCode != 200 || retryHeaders(r.Header) != ", , " {
					t.Errorf("%d, %s", r.StatusCode, retryHeaders(r.Header))
				}
				r := get(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if tt.outer != "" {
						for i, value := range strings.Split(tt.outer, ", ") {
							if value != "" {
								w.Header().Set(retryNames[i], value)
							}
						}
					}
					h.ServeHTTP(w, r)
				}))
				if got := retryHeaders(r.Header); r.StatusCode != 429 || got != tt.want {
					t.Errorf("%d, %s, want %s", r.StatusCode, got, tt.want)
				}
			})
		}
	}
}
