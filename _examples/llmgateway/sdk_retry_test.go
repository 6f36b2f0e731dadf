package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

// tries are how often each client of retry.mjs asks at most, by its own defaults. The SDKs of model APIs
// heed X-Should-Retry.
var tries = map[string]int{"got": 3, "ky": 3, "axios-retry": 4, "openai": 1, "anthropic": 1}

// spentMonth returns a Guard whose month is spent, with that much of it left.
func spentMonth(t *testing.T, dialect nethttp.Dialect, left time.Duration) *nethttp.Guard {
	t.Helper()
	gate := inMemory(core.NewManualClock(time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC).Add(-left)).Now)
	t.Cleanup(func() {
		if err := gate.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	guard := core.Must(nethttp.NewGuard(nethttp.Config{
		Gate: gate, Dialect: dialect,
		Rules: []nethttp.Rule{{Policy: core.Must(core.NewPolicy(monthly(1))), Key: keyfunc.Must(keyfunc.Static("k"))}},
	}))
	guard.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	return guard
}

// A client does not sleep until a spent month ends, and does not ask again and again: the SDKs of model
// APIs ask once, and others give up as they do without a Retry-After.
func TestClientsGiveUpOnASpentMonth(t *testing.T) {
	needNode(t)
	var mu sync.Mutex
	asked := make(map[string]int) // by /dialect/days/client
	mux := http.NewServeMux()
	var urls []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[strings.Join(strings.Split(r.URL.Path, "/")[:4], "/")]++
		mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	defer server.Close()
	for name, dialect := range map[string]nethttp.Dialect{
		"draft11": nethttp.Draft11{}, "legacy": nethttp.Legacy{}, "epoch": nethttp.Legacy{Epoch: true},
		"none": nethttp.None{}, "openai": llm.OpenAI{}, "anthropic": llm.Anthropic{},
	} {
		for _, days := range []float64{2.9, 29} {
			path := fmt.Sprintf("/%s/%v", name, days)
			guard := spentMonth(t, dialect, time.Duration(days*24*float64(time.Hour)))
			mux.Handle(path+"/", guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				t.Errorf("%s: a request was admitted", path)
			})))
			urls = append(urls, server.URL+path)
		}
	}
	ends := runRetries(t, urls)
	mu.Lock()
	defer mu.Unlock()
	for _, e := range ends {
		path := strings.TrimPrefix(e.URL, server.URL) + "/" + e.Client
		t.Logf("%s: %d tries in %.1f s", path, asked[path], e.Seconds)
		if n := asked[path]; e.Status != "429" || n < 1 || n > tries[e.Client] {
			t.Errorf("%s: %d tries, want at most %d; in the end %s", path, n, tries[e.Client], e.Status)
		}
	}
}

// retried is how a client of retry.mjs has ended.
type retried struct {
	Client, URL, Status string
	Seconds             float64
}

// runRetries asks each URL with all clients of retry.mjs at once.
func runRetries(t *testing.T, urls []string) (all []retried) {
	t.Helper()
	const awake = 25 * time.Second // the clients' own pauses are 3 s together
	args := []string{filepath.Join("sdk", "retry.mjs"), strconv.Itoa(int(awake.Seconds()))}
	cmd := exec.CommandContext(t.Context(), "node", append(args, urls...)...)
	cmd.Env = nodeEnv(t)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &all)
	}
	if err != nil || len(all) != len(urls)*len(tries) {
		t.Fatalf("node: %v, %s", err, out)
	}
	return all
}
