package llm_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

var user = keyfunc.Must(keyfunc.Header("X-User"))

// free is the tariff of a model that costs nothing.
var free = llm.Tariff{Price: llm.Price{Input: llm.Free, Output: llm.Free}}

// stack is a Meter with budgets, a limit on requests and slots of a tenant and of its users.
type stack struct {
	requests, input, output, spend, users *core.Policy
	semaphore                             *semaphore.Semaphore
}

func (s *stack) change(gate *core.Gate, requests, input, output, spend, users, slots int64) func(*llm.Config) {
	s.requests = policy("requests", core.UnitRequests, requests)
	s.input = policy("input", core.UnitInputTokens, input)
	s.output = policy("output", core.UnitOutputTokens, output)
	s.spend, s.users = policy("spend", core.UnitMicroDollars, spend), policy("users", core.UnitTokens, users)
	return func(cfg *llm.Config) {
		if gate != nil {
			cfg.Guard.Gate = gate
		}
		s.semaphore = core.Must(semaphore.New(cfg.Guard.Gate, semaphore.Config{Name: "streams"}))
		cfg.Guard.Scope = tenant
		cfg.Guard.Rules = []nethttp.Rule{{Policy: s.requests, Key: keyfunc.Must(keyfunc.Static("all"))}}
		cfg.Guard.Slot = &nethttp.Slot{Semaphore: s.semaphore, Caps: []nethttp.Cap{
			{Key: keyfunc.Must(keyfunc.Static("all")), Limit: slots}, {Key: user, Limit: slots},
		}}
		cfg.Budgets = nil
		for _, p := range []*core.Policy{s.input, s.output, s.spend} {
			cfg.Budgets = append(cfg.Budgets,
				llm.Budget{Policy: p, Key: keyfunc.Must(keyfunc.Static("all"))})
		}
		cfg.Budgets = append(cfg.Budgets, llm.Budget{Policy: s.users, Key: user})
		cfg.Models = map[string]llm.Model{"m": {Tariff: llm.Tariff{Price: llm.Price{Input: 1_000_000, Output: 2_000_000}}}}
	}
}

// A denial by any limit spends nothing under the others, and takes no slot.
func TestDenialSpendsNothing(t *testing.T) {
	for denier, limits := range map[string][6]int64{
		"requests": {1, 1000, 1000, 1000, 1000, 9},
		"input":    {9, 3, 1000, 1000, 1000, 9},
		"output":   {9, 1000, 50, 1000, 1000, 9},
		"spend":    {9, 1000, 1000, 103, 1000, 9},
		"users":    {9, 1000, 1000, 1000, 53, 9},
		"slots":    {9, 1000, 1000, 1000, 1000, 1},
	} {
		t.Run(denier, func(t *testing.T) {
			var s stack
			l := limits
			r := newRig(t, core.UnitTokens, 1, s.change(nil, l[0], l[1], l[2], l[3], l[4], l[5]))
			goOn := make(chan struct{})
			r.answer = events(1, func(w http.ResponseWriter, q *http.Request) {
				<-goOn
				chat(3, 2)(w, q)
			})
			first := r.post(chatPath, streamed, "X-User", "ann") // is charged 1, 3, 50, 103 and 53
			before := fmt.Sprint(r.peekUsed())
			gatetest.Equal(t, before, "[1 3 50 103 53]", "are used")
			names := `policy \"` + denier + `\"`
			if denier == "slots" {
				names = "All 1 concurrent requests are in use."
			}
			if status, body := r.ask(chatPath, streamed, "X-User", "ann"); status != 429 || !strings.Contains(body, names) {
				t.Errorf("%d %s", status, body)
			}
			gatetest.Equal(t, fmt.Sprint(r.peekUsed()), before, "are used after the denial")
			key := core.Must(core.NewKey(core.Must(tenant(r.request(chatPath, "")))))
			if holders, _, err := s.semaphore.Holders(t.Context(), key); len(holders) != 1 ||
				err != nil {
				t.Errorf("%d hold a slot, %v", len(holders), err)
			}
			close(goOn)
			read(t, first)
			<-r.reports
			gatetest.Equal(t, fmt.Sprint(r.peekUsed()), "[1 3 2 7 5]", "are used at the end")
		})
	}
}

// peekUsed returns what is used of every limit.
func (r *rig) peekUsed() (used []int64) {
	for _, result := range r.peek() {
		used = append(used, result.Used)
	}
	return used
}

// All limits, the slots and the decision are one round trip, and so is the settlement of all
// budgets; the slot is released in a third.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		var trips counting
		client := server.Client(t)
		client.AddHook(&trips)
		gate := gatetest.Redis(t, client, core.Config{Prefix: server.Prefix, Timeout: time.Minute})
		var s stack
		r := newRig(t, core.UnitTokens, 1, s.change(gate, 100, 1000, 1000, 1000, 1000, 9))
		var admitted int64
		r.answer = func(w http.ResponseWriter, q *http.Request) {
			admitted = trips.Load()
			chat(3, 2)(w, q)
		}
		read(t, r.post(chatPath, streamed, "X-User", "ann")) // loads the scripts
		<-r.reports
		before := trips.Load()
		read(t, r.post(chatPath, streamed, "X-User", "ann"))
		<-r.reports
		if decision, rest := admitted-before, trips.Load()-admitted; decision != 1 || rest != 2 {
			t.Errorf("%d round trips to decide and %d afterwards", decision, rest)
		}
	})
}

// counting is a hook of a Redis client that counts its round trips to scripts.
type counting struct{ atomic.Int64 }

func (c *counting) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch cmd.Name() {
		case "eval", "evalsha":
			c.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (c *counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) > 0 && (cmds[0].Name() == "evalsha" || cmds[0].Name() == "eval") {
			c.Add(1)
		}
		return next(ctx, cmds)
	}
}
