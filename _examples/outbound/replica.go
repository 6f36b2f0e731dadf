package main

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/outbound"
)

// silent keeps the client from logging each connection that it cannot make.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func newGate(addr string) (*core.Gate, error) {
	redis.SetLogger(silent{})
	client := redis.NewClient(&redis.Options{
		Addr:                  addr,
		ContextTimeoutEnabled: true, // a decision ends at its deadline
		DialerRetries:         1,    // the gate has its own circuit breaker
	})
	return core.NewRedis(client, core.Config{Replicas: replicas})
}

// tally is what came of the requests of a replica to a provider.
type tally struct {
	Answered, Refused int
	Busy              int // it would have waited for more than MaxWait
	Lost              int // streams that broke off
	Failed            int
}

func (t *tally) add(o tally) {
	t.Answered += o.Answered
	t.Refused += o.Refused
	t.Busy += o.Busy
	t.Lost += o.Lost
	t.Failed += o.Failed
}

// client is what a replica has for one provider.
type client struct {
	url     string
	http    *http.Client
	running sync.WaitGroup

	mu    sync.Mutex
	tally tally
}

// runReplica asks the providers at their URLs for some time.
func runReplica(gate *core.Gate, urls []string, last time.Duration) ([]tally, error) {
	tallies := make([]tally, len(kinds))
	var all sync.WaitGroup
	for i, k := range kinds {
		transport, err := k.transport(gate)
		if err != nil {
			return nil, err
		}
		c := &client{url: urls[i], http: &http.Client{Transport: transport}}
		all.Go(func() {
			c.ask(k.asked/replicas, last)
			tallies[i] = c.tally
		})
	}
	all.Wait()
	return tallies, nil
}

// transport returns a Transport that keeps the limits of a kind of provider.
func (k *kind) transport(gate *core.Gate) (*outbound.Transport, error) {
	meter, err := llm.NewOutbound(llm.OutboundConfig{})
	if err != nil {
		return nil, err
	}
	cfg := outbound.Config{
		Base: &http.Transport{MaxIdleConnsPerHost: 100}, Gate: gate, Meter: meter, MaxWait: 2 * time.Second,
	}
	if k.rule != nil {
		limit, err := core.NewPolicy(core.PolicyConfig{Name: "limit", Unit: k.unit, Algorithm: k.rule})
		if err != nil {
			return nil, err
		}
		cfg.Rules = []outbound.Rule{{Policy: limit, Key: outbound.ByModel, Limit: k.limit}}
	}
	if k.streams > 0 {
		slots, err := semaphore.New(gate, semaphore.Config{Name: "streams"})
		if err != nil {
			return nil, err
		}
		cfg.Slot = &outbound.Slot{
			Semaphore: slots, Caps: []outbound.Cap{{Key: outbound.ByModel, Limit: k.streams}},
		}
	}
	return outbound.New(cfg)
}

// ask sends perSecond requests a second for a time, and waits for the answers at the end only.
func (c *client) ask(perSecond int, last time.Duration) {
	ticker := time.NewTicker(time.Second / time.Duration(perSecond))
	defer ticker.Stop()
	for end := time.Now().Add(last); time.Now().Before(end); <-ticker.C {
		c.running.Go(c.one)
	}
	c.running.Wait()
}

func (c *client) one() {
	body := strings.NewReader(`{"model":"small","max_tokens":100,"stream":true,
		"messages":[{"role":"user","content":"hello"}]}`)
	request, err := http.NewRequest(http.MethodPost, c.url+"/v1/chat/completions", body)
	if err != nil {
		c.count(func(t *tally) { t.Failed++ })
		return
	}
	request.Header.Set("Authorization", "Bearer the-account")
	response, err := c.http.Do(request)
	if err != nil {
		busy := errors.Is(err, outbound.ErrBusy)
		c.count(func(t *tally) {
			if busy {
				t.Busy++
			} else {
				log.Print(err)
				t.Failed++
			}
		})
		return
	}
	text, err := io.ReadAll(response.Body)
	response.Body.Close()
	c.count(func(t *tally) {
		switch {
		case response.StatusCode != http.StatusOK:
			t.Refused++
		case err != nil || !strings.Contains(string(text), "[DONE]"):
			t.Lost++
		default:
			t.Answered++
		}
	})
}

func (c *client) count(change func(*tally)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.tally)
}
