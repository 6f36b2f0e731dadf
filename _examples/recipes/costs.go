package recipes

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
)

// Uploads lets a tenant upload 1 GiB a day, in bodies of at most 64 MiB. A body without a known length
// reserves these 64 MiB, and counts what the handler has read of it.
func Uploads(gate *core.Gate, store http.Handler) http.Handler {
	const longest = 64 << 20
	up := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "bytes-up", Unit: core.UnitContentBytes,
		Algorithm: core.Calendar{Limit: 1 << 30, Every: core.PeriodDay, In: time.UTC},
	}))
	guard := core.Must(nethttp.NewGuard(nethttp.Config{Gate: gate, Rules: []nethttp.Rule{{
		Policy: up, Key: byTenant, Cost: nethttp.ContentLength(longest),
		Settle: func(r *http.Request, _ int, _ int64) int64 { return spent(r.Context()).Load() },
	}}}))
	counting := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = &countedBody{r.Body, spent(r.Context())}
		store.ServeHTTP(w, r)
	})
	return http.MaxBytesHandler(withSpent(guard.Handler(counting)), longest)
}

// countedBody counts the bytes that are read of a body.
type countedBody struct {
	io.ReadCloser
	read *atomic.Int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read.Add(int64(n))
	return n, err
}

type spentKey struct{} // of the context, where a handler adds what its request has cost

// withSpent gives the requests of a Guard a place to count what they cost.
func withSpent(guarded http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guarded.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), spentKey{}, new(atomic.Int64))))
	})
}

// spent returns the counter of a request.
func spent(ctx context.Context) *atomic.Int64 { return ctx.Value(spentKey{}).(*atomic.Int64) }

// Batch charges a tenant one unit for each element of the JSON array in the body, of 1,000 a minute.
// A batch is taken whole or refused.
func Batch(gate *core.Gate, do http.Handler) http.Handler {
	const longest = 1 << 20
	items := core.Must(core.NewPolicy(core.PolicyConfig{Name: "items", Algorithm: core.AnyMinute(1000)}))
	guard := core.Must(nethttp.NewGuard(nethttp.Config{Gate: gate, Rules: []nethttp.Rule{{
		Policy: items, Key: byTenant, CostBody: longest,
		Cost: func(r *http.Request) int64 {
			var batch []json.RawMessage
			if err := json.NewDecoder(r.Body).Decode(&batch); err != nil {
				return 1 // the handler refuses it
			}
			return max(1, int64(len(batch)))
		},
	}}}))
	return http.MaxBytesHandler(guard.Handler(do), longest)
}

// GraphQL charges a tenant what its queries have cost, of 10,000 points a minute. The resolvers tell
// that by Points. A query reserves 100 points while it runs.
func GraphQL(gate *core.Gate, server http.Handler) http.Handler {
	points := core.Must(core.NewPolicy(core.PolicyConfig{Name: "points", Algorithm: core.PerMinute(10_000)}))
	guard := core.Must(nethttp.NewGuard(nethttp.Config{Gate: gate, Rules: []nethttp.Rule{{
		Policy: points, Key: byTenant, Clamp: true,
		Cost:   func(*http.Request) int64 { return 100 },
		Settle: func(r *http.Request, _ int, _ int64) int64 { return max(1, spent(r.Context()).Load()) },
	}}}))
	return withSpent(guard.Handler(server))
}

// Points adds to the cost of the query that ctx is of, such as the number of nodes that a resolver
// returns.
func Points(ctx context.Context, n int64) { spent(ctx).Add(n) }
