// Package decisions compares rate limits on Redis: this project's algorithms with those of other libraries.
package decisions

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"

	"github.com/headgate/headgate/lab/bench/internal/measure"
)

// quota is the limit that all contenders are given: what an untouched key allows, and how long that takes to come back.
type quota struct {
	limit int64
	per   time.Duration
	// denied says that every call after the first is to be denied.
	denied bool
	// brief makes what remembers single charges, or small windows, do so for a short time only, so that a key that is
	// called all the time holds as much as it ever does and no more.
	brief bool
}

var (
	// generous is out of reach, and its windows and buckets outlast the run.
	generous  = quota{limit: 50_000_000, per: time.Hour}
	exhausted = quota{limit: 1, per: 24 * time.Hour, denied: true}
)

// decide is one decision on a key.
type decide func(ctx context.Context, key int) (allowed bool, err error)

// line is a line of the tables.
type line struct {
	name string
	kind measure.Kind
	make func(*bed, quota) (decide, error)
	// many says that it is measured with the largest number of keys too, which takes a while to fill, cluster that
	// it is measured on a cluster, and alone that what a lone call costs the server is counted.
	many, cluster, alone bool
	// allowedOnly says that its denials are those of another line, and deniedOnly that all else is.
	allowedOnly, deniedOnly bool
}

// bed is what contenders are made of.
type bed struct {
	addr   string
	client redis.UniversalClient
	gate   *core.Gate
	asking *core.Gate // which knows no denials
	// prefix keeps what is made for one load apart from what is made for others.
	prefix string
	names  []string
	keys   []core.Key
	// close ends what contenders have opened.
	close []func()
}

// grow makes keys up to a number of them, all with names of 13 bytes.
func (b *bed) grow(n int) error {
	for i := len(b.names); i < n; i++ {
		name := fmt.Sprintf("user-%08d", i)
		key, err := core.NewKey(name)
		if err != nil {
			return fmt.Errorf("make a key: %w", err)
		}
		b.names, b.keys = append(b.names, name), append(b.keys, key)
	}
	return nil
}

func newBed(addr string, client redis.UniversalClient, timeout time.Duration) (*bed, error) {
	gate, err := core.NewRedis(client, core.Config{Timeout: timeout})
	if err != nil {
		return nil, fmt.Errorf("make the gate: %w", err)
	}
	asking, err := core.NewRedis(client, core.Config{Timeout: timeout, DisableDenialCache: true})
	if err != nil {
		return nil, fmt.Errorf("make the gate: %w", err)
	}
	return &bed{addr: addr, client: client, gate: gate, asking: asking}, nil
}

// end closes the gate and all else but the client.
func (b *bed) end() {
	// Nothing is under way any more that could fail to end.
	_ = b.gate.Close(context.Background())
	_ = b.asking.Close(context.Background())
	for _, f := range b.close {
		f()
	}
}

// contenders makes the lines that a load is for.
func (b *bed) contenders(q quota, prefix string, keys int, choose func(*line) bool) ([]measure.Contender, error) {
	if err := b.grow(keys); err != nil {
		return nil, err
	}
	b.prefix = prefix
	var made []measure.Contender
	for _, e := range lines() {
		if q.denied && e.allowedOnly || !q.denied && e.deniedOnly || choose != nil && !choose(&e) {
			continue
		}
		call, err := e.make(b, q)
		if err != nil {
			return nil, fmt.Errorf("make %s: %w", e.name, err)
		}
		made = append(made, measure.Contender{Name: e.name, Kind: e.kind, Do: q.check(call)})
	}
	return made, nil
}

// check makes an operation of a decision, which is right if it is the one that the quota makes inevitable.
func (q quota) check(call decide) measure.Do {
	return func(ctx context.Context, _, key int) (bool, error) {
		allowed, err := call(ctx, key)
		return allowed != q.denied, err
	}
}

// Alone makes the contenders of which one caller is measured who shares nothing with others. A decision has this long,
// or as long as by default if that is 0.
func Alone(
	client redis.UniversalClient, keys int, timeout time.Duration,
) (contenders []measure.Contender, end func(), err error) {
	b, err := newBed("", client, timeout)
	if err != nil {
		return nil, nil, err
	}
	contenders, err = b.contenders(generous, "l", keys, func(e *line) bool { return e.alone })
	return contenders, b.end, err
}

func (b *bed) ping() measure.Do {
	return func(ctx context.Context, _, _ int) (bool, error) {
		err := b.client.Ping(ctx).Err()
		return err == nil, err
	}
}

func lines() []line {
	var all []line
	all = append(all, headgate()...)
	all = append(all, peers()...)
	return append(all, floors()...)
}
