package core_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// What is settled or cancelled while Redis refuses is sent again until Redis has it, and counts
// once, with and without a hold and after the hold has ended.
func TestSettlesOutliveRefusals(t *testing.T) {
	t.Parallel()
	holds := map[string]time.Duration{"no hold": 0, "a hold": time.Hour, "a hold that ends": shortHold}
	for name, begin := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			admin := s.Client(t)
			do(t, admin, appUser...)
			client := s.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
			hook := new(answers)
			client.AddHook(onScripts(hook.answer))
			told := make(chan error, 100)
			timeout := longTimeout // a settle without an answer would not be sent again
			if name == "dead" {
				timeout = busyTimeout
			}
			g := redisGate(t, client, core.Config{Timeout: timeout, Observe: func(_ context.Context, e core.Event) {
				if isOp(e, core.OpSettle) || isOp(e, core.OpCancel) {
					told <- e.(*core.ReservationEvent).Err
				}
			}})
			key := newKey(t, "k")
			policies := make(map[string]*core.Policy)
			var open []func() error
			for hold, d := range holds {
				for what, units := range map[string]int64{"less": 3, "more": 7, "nothing": 0, "cancel": -1} {
					name := strings.ReplaceAll(hold+" "+what, " ", "-")
					p := newPolicy(t, core.PolicyConfig{Name: name, Algorithm: frozen(20), Hold: d})
					policies[name] = p
					decide(t, g, core.Charge{Policy: p, Key: key, Cost: 2}) // somebody else's
					r := charge(t, g, core.Charge{Policy: p, Key: key, Cost: 5})
					open = append(open, func() error {
						if units < 0 {
							return r.Cancel(t.Context())
						}
						return r.Settle(t.Context(), units)
					})
				}
			}
			end := begin(t, s, admin, hook)
			if name == "dead" { // what is on its way when the circuit opens may have been settled
				eventually(t, "the circuit is open", func() bool {
					d, err := g.Peek(t.Context(), core.Charge{Policy: policies["no-hold-less"], Key: key})
					return err == nil && errors.Is(d.Cause, core.ErrCircuitOpen)
				})
			}
			for _, settle := range open {
				if err := settle(); err == nil {
					t.Error("settled while Redis refuses")
				}
				if err := <-told; err == nil {
					t.Error("the failure was not told")
				}
			}
			<-time.After(shortHold) // ends
			end()
			for range open {
				select {
				case err := <-told:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(longTimeout):
					t.Fatal("not settled")
				}
			}
			for name, p := range policies {
				want := int64(2)
				switch {
				case strings.HasSuffix(name, "less"):
					want = 5
				case strings.HasSuffix(name, "more"):
					want = 9
				}
				if n := used(t, g, p, key); n != want {
					t.Errorf("%s: %d units are in use, want %d", name, n, want)
				}
			}
		})
	}
}

const shortHold = time.Second

// appUser makes the user of the Gate.
var appUser = []any{"ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"}

// refusals are ways in which Redis refuses, until the func that they return is called.
var refusals = map[string]func(
	t *testing.T, s *redistest.Server, admin *redis.Client, h *answers,
) (end func()){
	"NOPERM": func(t *testing.T, _ *redistest.Server, admin *redis.Client, _ *answers) func() {
		do(t, admin, "ACL", "SETUSER", "app", "-evalsha", "-eval")
		return func() { do(t, admin, "ACL", "SETUSER", "app", "+evalsha", "+eval") }
	},
	"WRONGPASS": func(t *testing.T, _ *redistest.Server, admin *redis.Client, _ *answers) func() {
		do(t, admin, "ACL", "SETUSER", "app", "<secret", ">other")
		do(t, admin, "CLIENT", "KILL", "USER", "app")
		return func() { do(t, admin, "ACL", "SETUSER", "app", ">secret") }
	},
	"LOADING": func(_ *testing.T, _ *redistest.Server, _ *redis.Client, h *answers) func() {
		h.with("LOADING Redis is loading the dataset in memory")
		return func() { h.with("") }
	},
	"NOREPLICAS": func(t *testing.T, _ *redistest.Server, admin *redis.Client, _ *answers) func() {
		do(t, admin, "CONFIG", "SET", "min-replicas-to-write", "1")
		return func() { do(t, admin, "CONFIG", "SET", "min-replicas-to-write", "0") }
	},
	"dead": func(t *testing.T, s *redistest.Server, admin *redis.Client, _ *answers) func() {
		s.Kill()
		return func() {
			s.Restart()
			do(t, admin, appUser...)
		}
	},
}

// What an answer does not tell to have changed nothing may have been settled: without a hold it stays
// as it is.
func TestDoubtfulSettleIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"upstream failure",
		"ERR Connection timed out",
		"ERR The user executing the script can't run this command or subcommand script: abc, on @user_script:1.",
		"NOPERM this user has no permissions to run the 'set' command script: abc, on @user_script:1.",
	} {
		t.Run(answer, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				client, hook := s.Client(t), new(answers)
				client.AddHook(onScripts(hook.answer))
				g := redisGate(t, client, core.Config{Prefix: s.Prefix})
				p, key := limited(t, "p", frozen(20)), newKey(t, "k")
				r := charge(t, g, core.Charge{Policy: p, Key: key, Cost: 5})
				hook.with(answer)
				if err := r.Settle(t.Context(), 3); err == nil {
					t.Error("settled")
				}
				hook.with("")
				g.AwaitTasks()
				wantUsed(t, g, p, key, 5)
			})
		})
	}
}

// answers answers scripts in the server's place.
type answers struct{ text atomic.Value }

func (h *answers) with(text string) { h.text.Store(text) }

func (h *answers) answer(_ context.Context, cmds []redis.Cmder, send func() error) error {
	if text, _ := h.text.Load().(string); text != "" {
		return fail(cmds, errorReply(text))
	}
	return send()
}

// errorReply is an error with which a server answers.
type errorReply string

func (e errorReply) Error() string { return string(e) }
func (errorReply) RedisError()     {}
