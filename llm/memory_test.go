package llm_test

import (
	"io"
	"math"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// A running stream keeps neither its prompt nor more than 20 KiB of heap and stacks beside what a
// reverse proxy without a Meter takes. Both sides of every connection are in this process.
func TestMemoryOfAStream(t *testing.T) {
	const streams, prompt, most = 100, 1 << 20, 20 << 10
	r := newRig(t, core.UnitTokens, 1<<40, func(cfg *llm.Config) { cfg.ChargeEvery = 1000 })
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	// live returns the memory that the streams of one gateway take.
	live := func(h http.Handler) int64 {
		goOn := make(chan struct{})
		r.answer = events(3, func(w http.ResponseWriter, q *http.Request) {
			<-goOn
			chat(7, 11)(w, q)
		})
		r.serve(h)
		body := `{"model":"m","stream":true,"prompt":"` + strings.Repeat("a", prompt) + `"}`
		before := footprint()
		var open []io.ReadCloser
		for range streams {
			response, err := client.Do(r.request(chatPath, body))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(response.Body, make([]byte, 3*len(word))); err != nil {
				t.Fatal(err)
			}
			open = append(open, response.Body)
		}
		r.mu.Lock()
		r.asked = nil // the bodies that the upstream has read
		r.mu.Unlock()
		taken := footprint() - before
		close(goOn)
		for _, b := range open {
			_, _ = io.Copy(io.Discard, b)
			b.Close()
		}
		return taken / streams
	}
	proxy := proxyTo(t, r.upstream)
	live(proxy) // fills the pools
	more := int64(math.MaxInt64)
	for range 5 { // where the machine stalls, others send the calls of a stream, and stacks grow deeper
		bare, metered := live(proxy), live(r.meter.Handler(proxy))
		t.Logf("%d bytes a stream without a Meter, %d with one", bare, metered)
		if more = min(more, metered-bare); more <= most {
			return
		}
	}
	t.Errorf("a stream takes %d bytes more with a Meter, at most %d are allowed", more, most)
}

// footprint returns the live heap and the stacks.
func footprint() int64 {
	runtime.GC()
	runtime.GC() // what pools dropped in the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
