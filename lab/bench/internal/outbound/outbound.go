// Package outbound measures what a Transport adds to a request that has room.
package outbound

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/outbound"

	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
	"github.com/headgate/headgate/lab/bench/internal/server"
)

// patience is the time for a decision, so that a busy machine refuses nothing.
const patience = 10 * time.Second

// limit is out of reach. Its tokens are of whole microseconds, as those of most limits.
var limit = core.TokenBucket{Rate: 1_000_000, Per: time.Second, Burst: 1_000_000_000}

const prompt = `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"hello"}]}`

// base answers at once, so that the rest of a request is the Transport's.
type base struct{ status int }

func (b base) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	h := http.Header{}
	if b.status == http.StatusTooManyRequests {
		h.Set("Retry-After", "3600")
	}
	return &http.Response{StatusCode: b.status, Header: h, Body: http.NoBody, Request: r}, nil
}

// perProcess is the transport that programs write themselves: it knows the requests of its process only.
type perProcess struct {
	base
	limiter *rate.Limiter
}

func (p perProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := p.limiter.Wait(r.Context()); err != nil {
		return nil, fmt.Errorf("wait: %w", err)
	}
	return p.base.RoundTrip(r)
}

// decided asks the Gate itself before it sends a request.
type decided struct {
	base
	gate   *core.Gate
	charge core.Charge
}

func (d decided) RoundTrip(r *http.Request) (*http.Response, error) {
	decision, err := d.gate.Decide(r.Context(), d.charge)
	if err != nil {
		return nil, fmt.Errorf("decide: %w", err)
	}
	if !decision.Allowed {
		return nil, errDenied
	}
	return d.base.RoundTrip(r)
}

var errDenied = errors.New("denied")

// Run measures one request after the other, in turns with PINGs. The error also tells where a request was refused that
// has room, or sent during a cooldown; the table is there then all the same.
func Run(ctx context.Context, plan measure.Plan, s *server.Server) ([]report.Table, error) {
	client := s.Client()
	defer func() { _ = client.Close() }()
	gate, err := core.NewRedis(client, core.Config{Timeout: patience})
	if err != nil {
		return nil, fmt.Errorf("make the gate: %w", err)
	}
	defer func() { _ = gate.Close(context.Background()) }() // nothing is under way any more
	contenders, err := contenders(ctx, gate)
	if err != nil {
		return nil, err
	}
	t := report.Table{
		Title: "A request of a client that has room",
		Note: "Microseconds of a request by one caller, without the way to its server, beside those of a PING that takes " +
			"turns with it. What a Transport takes above a decision, both without their PINGs, is its own: it also asks " +
			"for cooldowns, in the same round trip. A limiter in the process knows nothing of other replicas. A refusal " +
			"that is known asks Redis nothing.",
		Columns: []string{"", "us", "above bare", "PING, us", "above bare and a PING", "above a decision", "allocs"},
	}
	var driver measure.Driver
	load := measure.Load{Workers: 1, Keys: 1, Slice: plan.Slice}
	results, err := driver.Rounds(ctx, 2*plan.Rounds, load, ping(client), contenders)
	if err != nil {
		return nil, err
	}
	var wrong error
	bare, asked := results[0].Own(measure.P50), results[1].Own(measure.P50)
	asked -= measure.Reference(results[1:2], measure.P50)
	for i := range results {
		r := &results[i]
		if _, denied, failed := r.Answered(); denied+failed > 0 {
			wrong = fmt.Errorf("%s: %d requests were not as expected, and %d failed", r.Name, denied, failed)
		}
		own, of := r.Own(measure.P50), measure.Reference(results[i:i+1], measure.P50)
		above, beside, beyond := "", "", ""
		if i > 0 {
			above = report.Number(own - bare)
		}
		if r.Kind == measure.Ours && r.Name != known {
			beside = report.Number(own - bare - of)
			if r.Name != decision {
				beyond = report.Number(own - of - asked)
			}
		}
		t.Add(r.Label(), report.Number(own), above, report.Number(of), beside, beyond, report.Number(r.Own(measure.Mallocs)))
	}
	return []report.Table{t}, wrong
}

func ping(client *redis.Client) measure.Do {
	return func(ctx context.Context, _, _ int) (bool, error) {
		err := client.Ping(ctx).Err()
		return err == nil, err
	}
}

const (
	// decision is the contender that a Transport is compared with.
	decision = "Headgate, a decision of a rule before a bare transport"
	// known is the contender whose requests fail at once.
	known = "Headgate, a known refusal"
)

func contenders(ctx context.Context, gate *core.Gate) ([]measure.Contender, error) {
	one, err := newTransport(gate, outbound.Config{Base: base{http.StatusOK}}, core.UnitRequests)
	if err != nil {
		return nil, err
	}
	streams, err := semaphore.New(gate, semaphore.Config{Name: "streams"})
	if err != nil {
		return nil, fmt.Errorf("make the semaphore: %w", err)
	}
	meter, err := llm.NewOutbound(llm.OutboundConfig{CountsCap: true})
	if err != nil {
		return nil, fmt.Errorf("make the meter: %w", err)
	}
	model, err := newTransport(gate, outbound.Config{
		Base: base{http.StatusOK}, Meter: meter, MaxWait: time.Minute,
		Slot: &outbound.Slot{Semaphore: streams, Caps: []outbound.Cap{{Key: outbound.ByModel, Limit: 1000}}},
	}, core.UnitRequests, core.UnitTokens)
	if err != nil {
		return nil, err
	}
	cools, err := newTransport(gate, outbound.Config{Base: base{http.StatusTooManyRequests}}, core.UnitRequests)
	if err != nil {
		return nil, err
	}
	rule, err := newDecided(gate)
	if err != nil {
		return nil, err
	}
	send := func(rt http.RoundTripper, key string) measure.Do {
		return func(ctx context.Context, _, _ int) (bool, error) {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://api.example.com/v1/chat/completions",
				strings.NewReader(prompt))
			if err != nil {
				return false, fmt.Errorf("make a request: %w", err)
			}
			r.Header.Set("Authorization", key)
			response, err := rt.RoundTrip(r)
			if err != nil {
				return false, fmt.Errorf("send a request: %w", err)
			}
			return response.StatusCode == http.StatusOK, response.Body.Close()
		}
	}
	local := perProcess{base{http.StatusOK}, rate.NewLimiter(1e9, 1e9)}
	first := send(cools, "Bearer cold") // begins the cooldown
	if _, err := first(ctx, 0, 0); err != nil {
		return nil, err
	}
	return []measure.Contender{ // Run compares the others with the first two
		{Name: "a bare transport", Kind: measure.Floor, Do: send(base{http.StatusOK}, "Bearer a")},
		{Name: decision, Kind: measure.Ours, Do: send(rule, "Bearer a")},
		{Name: "x/time/rate in the process", Kind: measure.Peer, Do: send(local, "Bearer a")},
		{Name: "Headgate, a rule", Kind: measure.Ours, Do: send(one, "Bearer a")},
		{Name: "Headgate, requests, tokens and a slot of a model", Kind: measure.Ours, Do: send(model, "Bearer a")},
		{Name: known, Kind: measure.Ours, Do: func(ctx context.Context, worker, key int) (bool, error) {
			_, err := first(ctx, worker, key)
			return err != nil, nil // it must not be sent
		}},
	}, nil
}

// newDecided returns what asks for one rule, of the key that one account has.
func newDecided(gate *core.Gate) (decided, error) {
	d := decided{base: base{http.StatusOK}, gate: gate}
	p, err := core.NewPolicy(core.PolicyConfig{Name: "decided", Algorithm: limit})
	if err != nil {
		return d, fmt.Errorf("make the policy: %w", err)
	}
	key, err := core.NewKey("api.example.com", "a")
	if err != nil {
		return d, fmt.Errorf("make the key: %w", err)
	}
	d.charge = core.Charge{Policy: p, Key: key}
	return d, nil
}

func newTransport(gate *core.Gate, cfg outbound.Config, units ...core.Unit) (*outbound.Transport, error) {
	cfg.Gate = gate
	for _, unit := range units {
		p, err := core.NewPolicy(core.PolicyConfig{Name: "outbound-" + unit.String(), Unit: unit, Algorithm: limit})
		if err != nil {
			return nil, fmt.Errorf("make the policy: %w", err)
		}
		key := outbound.ByCredential
		if cfg.Meter != nil {
			key = outbound.ByModel
		}
		cfg.Rules = append(cfg.Rules, outbound.Rule{Policy: p, Key: key})
	}
	t, err := outbound.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("make the transport: %w", err)
	}
	return t, nil
}
