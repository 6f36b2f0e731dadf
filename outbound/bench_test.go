package outbound_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbound"
)

// answered is a Base that answers at once, so that a benchmark measures the Transport alone.
var answered = roundTripper(func(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, nil
})

func benchmark(b *testing.B, tr http.RoundTripper) {
	r := request(b, b.Context(), "http://api.example.com/model")
	r.Header.Set("Authorization", "Bearer sk-0123456789012345678901234567890123456789")
	b.ReportAllocs()
	for b.Loop() {
		res, err := tr.RoundTrip(r)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
}

// BenchmarkTransport measures what a request takes beside its round trip to the upstream. The
// difference of Redis and one round trip is what the Transport adds.
func BenchmarkTransport(b *testing.B) {
	rules := func(b *testing.B) (all []outbound.Rule) {
		for _, name := range []string{"requests", "tokens"} {
			all = append(all, outbound.Rule{Policy: gatetest.Limited(b, name, core.TokenBucket{Rate: 1 << 40, Per: time.Second, Burst: 1 << 40}), Key: outbound.ByModel})
		}
		return all
	}
	memory := gatetest.Memory(b, core.Config{})
	s := redistest.Start(b)
	client := s.Client(b)
	shared := gatetest.Redis(b, client, core.Config{})
	b.Run("bare", func(b *testing.B) { benchmark(b, answered) })
	b.Run("round trip", func(b *testing.B) {
		for b.Loop() {
			if err := client.Ping(b.Context()).Err(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, g := range map[string]*core.Gate{"memory": memory, "Redis": shared} {
		b.Run(name+"/cooldowns", func(b *testing.B) {
			benchmark(b, transport(b, outbound.Config{Base: answered, Gate: g}))
		})
		b.Run(name+"/rules", func(b *testing.B) {
			benchmark(b, transport(b, outbound.Config{Base: answered, Gate: g, Meter: byPath{}, Rules: rules(b)}))
		})
		b.Run(name+"/rules and slot", func(b *testing.B) {
			benchmark(b, transport(b, outbound.Config{
				Base: answered, Gate: g, Meter: byPath{}, Rules: rules(b), Slot: slotOf(b, g, 1000), MaxWait: time.Minute,
			}))
		})
	}
}
