package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// PoolConfig configures a Pool.
type PoolConfig struct {
	// Upstreams are asked in this order. There must be at least one, each with another name.
	Upstreams []Upstream
	// MaxWait bounds how long a request waits for an upstream while all are busy, in place of the
	// MaxWait of their Transports. The deadline of its context bounds that too. Zero waits for
	// nothing. It is at most 10 years.
	MaxWait time.Duration
	// Sticky returns what requests have in common that go to one upstream while it has room, such as
	// the conversation whose prompt it caches. Each value has an order of upstreams of its own, which
	// stays as it is when others come or go. An empty value has the order of Upstreams, and so has
	// every request if Sticky is nil. It must be safe for concurrent use, and must not read the body.
	Sticky func(*http.Request) string
	// Retry sends a request that an upstream has refused to the next one, in place of the Retry of
	// their Transports. The zero value sends none again.
	Retry Retry
}

// Upstream is one upstream of a Pool: an account, a region or a deployment.
type Upstream struct {
	// Name identifies the upstream, also in the order of a Sticky value. It is required.
	Name string
	// Transport keeps the limits of the upstream. It is required.
	Transport *Transport
	// Rewrite makes a request one for this upstream: it sets the host, the credentials or the path.
	// The host is both URL.Host, where the request goes, and Host, the header that it has there.
	// The request is a copy with a URL and headers of its own. Rewrite must not change the body, and
	// must be safe for concurrent use. Nil changes nothing.
	Rewrite func(*http.Request)

	down *atomic.Pointer[unreached] // the last time, or nil; NewPool makes it
}

// Pool is an http.RoundTripper that sends a request to the first of several upstreams that admits
// it now, and otherwise to the one that has room first. A request goes on to the next upstream if
// no connection to one could be made, and its body is empty or can be had anew from
// http.Request.GetBody. For a second no other request goes to that one. NewPool makes a Pool. It is
// immutable and safe for concurrent use.
type Pool struct{ cfg PoolConfig }

// NewPool returns a Pool, or every fault of the configuration at once.
func NewPool(cfg PoolConfig) (*Pool, error) {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("outbound: PoolConfig."+format, args...))
	}
	if len(cfg.Upstreams) == 0 {
		fault("Upstreams is empty")
	}
	names := make(map[string]bool)
	for i, u := range cfg.Upstreams {
		if u.Name == "" || names[u.Name] {
			fault("Upstreams[%d].Name is %q: it must be another for each upstream", i, u.Name)
		}
		names[u.Name] = true
		if u.Transport == nil || u.Transport.cool == nil {
			fault("Upstreams[%d].Transport is nil or zero: New must make it", i)
		}
	}
	if cfg.MaxWait < 0 || cfg.MaxWait > longestWait {
		fault("MaxWait is %v: it must be between 0 and 10 years", cfg.MaxWait)
	}
	if cfg.Retry.Max < 0 || cfg.Retry.Max > maxRetries {
		fault("Retry.Max is %d: it must be between 0 and %d", cfg.Retry.Max, maxRetries)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	cfg.Upstreams = slices.Clone(cfg.Upstreams)
	for i := range cfg.Upstreams {
		cfg.Upstreams[i].down = new(atomic.Pointer[unreached])
	}
	return &Pool{cfg: cfg}, nil
}

// RoundTrip sends a request to an upstream. It does not change the request. If no upstream has room
// within PoolConfig.MaxWait the error is a *PoolBusyError. If no upstream could be reached it wraps
// the errors of all. Other errors are those of the Transport that has sent the request, or could
// not decide on it.
func (p *Pool) RoundTrip(req *http.Request) (*http.Response, error) {
	if p == nil || len(p.cfg.Upstreams) == 0 {
		closeBody(req)
		return nil, errZero
	}
	s := search{pool: p, given: req, req: req, until: time.Now().Add(p.cfg.MaxWait)}
	if at, ok := req.Context().Deadline(); ok && at.Before(s.until) {
		s.until, s.cause = at, context.DeadlineExceeded
	}
	return s.run(p.order(req))
}

// CloseIdleConnections closes those of all upstreams, as http.Client.CloseIdleConnections asks.
func (p *Pool) CloseIdleConnections() {
	for _, u := range p.cfg.Upstreams {
		u.Transport.CloseIdleConnections()
	}
}

// order returns the upstreams in the order in which a request asks them: by rendezvous hashing if
// it is sticky.
func (p *Pool) order(req *http.Request) []*Upstream {
	all := make([]*Upstream, len(p.cfg.Upstreams))
	for i := range all {
		all[i] = &p.cfg.Upstreams[i]
	}
	key := ""
	if p.cfg.Sticky != nil {
		key = p.cfg.Sticky(req)
	}
	if key != "" {
		slices.SortStableFunc(all, func(a, b *Upstream) int {
			return cmp.Compare(score(key, b.Name), score(key, a.Name))
		})
	}
	return all
}

// score is the rank of an upstream for a sticky value.
func score(key, name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(key))
	// FNV changes the high bits little for the last bytes. This is the finalizer of MurmurHash3.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
