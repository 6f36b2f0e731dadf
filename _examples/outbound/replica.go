package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/outbound"
)

// replica is one of the programs that share the account.
type replica struct {
	url       string
	gate      *core.Gate
	transport *outbound.Transport
	running   sync.WaitGroup

	sent, busy, failed atomic.Int64
}

// newReplicas returns two replicas. In memory they share a Gate, as if they were one process.
func newReplicas(url string) (a, b *replica, err error) {
	gates := make([]*core.Gate, 2)
	if at := os.Getenv("REDIS_URL"); at == "" {
		log.Print("keeping limits in memory: REDIS_URL is not set")
		gates[0], err = core.NewMemory(core.Config{})
		gates[1] = gates[0]
	} else {
		for i := range gates {
			if gates[i], err = newGate(at); err != nil {
				break
			}
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if a, err = newReplica(url, gates[0]); err != nil {
		return nil, nil, err
	}
	b, err = newReplica(url, gates[1])
	return a, b, err
}

func newGate(url string) (*core.Gate, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	options.ContextTimeoutEnabled = true // a decision ends at its deadline
	options.DialerRetries = 1            // the gate has its own circuit breaker
	return core.NewRedis(redis.NewClient(options), core.Config{Replicas: 2})
}

// newReplica returns a replica whose requests keep the limits of the provider.
func newReplica(url string, gate *core.Gate) (*replica, error) {
	meter, err := llm.NewOutbound(llm.OutboundConfig{})
	if err != nil {
		return nil, err
	}
	requests, err := core.NewPolicy(core.PolicyConfig{
		Name: "requests", Algorithm: core.TokenBucket{Rate: perSecond, Per: time.Second, Burst: bucket / 10},
	})
	if err != nil {
		return nil, err
	}
	slots, err := semaphore.New(gate, semaphore.Config{Name: "streams"})
	if err != nil {
		return nil, err
	}
	transport, err := outbound.New(outbound.Config{
		Gate:  gate,
		Meter: meter,
		Rules: []outbound.Rule{{Policy: requests, Key: outbound.ByModel}},
		Slot: &outbound.Slot{
			Semaphore: slots, Caps: []outbound.Cap{{Key: outbound.ByModel, Limit: streams}},
		},
		MaxWait: 2 * time.Second,
	})
	return &replica{url: url, gate: gate, transport: transport}, err
}

// ask sends so many requests a second until the context ends. It does not wait for the answers.
func (r *replica) ask(ctx context.Context, perSecond int) {
	r.running.Go(func() {
		ticker := time.NewTicker(time.Second / time.Duration(perSecond))
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				r.running.Go(r.one)
			case <-ctx.Done():
				return
			}
		}
	})
}

func (r *replica) one() {
	body := strings.NewReader(`{"model":"small","max_tokens":20,"stream":true,
		"messages":[{"role":"user","content":"hello"}]}`)
	request, err := http.NewRequest(http.MethodPost, r.url+"/v1/chat/completions", body)
	if err != nil {
		r.failed.Add(1)
		return
	}
	request.Header.Set("Authorization", "Bearer the-account")
	client := &http.Client{Transport: r.transport}
	switch response, err := client.Do(request); {
	case errors.Is(err, outbound.ErrBusy): // it would wait for more than MaxWait
		r.busy.Add(1)
	case err != nil:
		r.failed.Add(1)
	default:
		r.sent.Add(1)
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
}

// String tells what becomes of the requests of the replica.
func (r *replica) String() string {
	text := fmt.Sprintf("%3d wait, %4d sent, %4d busy", r.transport.Waiting(), r.sent.Load(), r.busy.Load())
	if n := r.failed.Load(); n > 0 {
		text += fmt.Sprintf(", %d failed", n)
	}
	return text
}
