package llm_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/llm"
)

// leaves is a hook of a Redis client that ends a request once, when the next script is sent.
type leaves struct {
	leave atomic.Pointer[context.CancelFunc]
}

func (h *leaves) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *leaves) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if leave := h.leave.Swap(nil); leave != nil && strings.HasPrefix(cmd.Name(), "eval") {
			(*leave)()
		}
		return next(ctx, cmd)
	}
}

func (h *leaves) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A client that leaves while its budget is asked has nothing spent, keeps no slot, and is told of.
func TestClientLeavesBeforeItsBudgetAnswers(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client, hook := s.Client(t), new(leaves)
		client.AddHook(hook)
		gate := made(t)(core.NewRedis(client, core.Config{Prefix: s.Prefix, Timeout: generous}))
		running := core.Must(semaphore.New(gate, semaphore.Config{Name: "running"}))
		r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
			cfg.Guard = nethttp.Config{Gate: gate, Slot: &nethttp.Slot{
				Semaphore: running, Caps: []nethttp.Cap{{Name: "running", Key: tenant, Limit: 1}},
			}}
		})
		r.answer = chat(1, 1)
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			hook.leave.Store(&cancel)
			q := httptest.NewRequestWithContext(ctx, "POST", chatPath, strings.NewReader(small))
			q.Header.Set("X-Tenant", "acme")
			w := httptest.NewRecorder()
			r.meter.Handler(proxyTo(t, r.upstream)).ServeHTTP(w, q)
			if event := r.want(llm.OutcomeLeft, llm.Usage{}, 0); event.Estimate.Output == 0 || event.HTTP == nil {
				t.Errorf("%+v", event)
			}
			if w.Code != 503 {
				t.Errorf("status %d", w.Code)
			}
			key := core.Must(core.NewKey(core.Must(tenant(q))))
			for taken := 1; taken > 0; { // the slot is released in the background
				holders, _, err := running.Holders(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				taken = len(holders)
			}
		}
	})
}
