package outbound

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
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
}

// Pool is an http.RoundTripper that sends a request to the first of several upstreams that admits
// it now, and otherwise to the one that has room first. A request goes on to the next upstream if
// no connection to one could be made, and its body is empty or can be had anew from
// http.Request.GetBody. For a second no other request goes to that one. NewPool makes a Pool. It is
// immutable and safe for concurrent use.
type Pool struct {
	cfg       PoolConfig
	upstreams []*upstream
}

// upstream is an Upstream of a Pool.
type upstream struct {
	Upstream
	down atomic.Pointer[unreached] // the last time, or nil
}

// unreached is that no connection to an upstream could be made.
type unreached struct {
	at  time.Time
	err error
}

// NewPool returns a Pool, or every fault of the configuration at once.
func NewPool(cfg PoolConfig) (*Pool, error) {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("outbound: PoolConfig."+format, args...))
	}
	if len(cfg.Upstreams) == 0 {
		fault("Upstreams is empty")
	}
	p := &Pool{cfg: cfg}
	names := make(map[string]bool)
	for i, u := range cfg.Upstreams {
		if u.Name == "" || names[u.Name] {
			fault("Upstreams[%d].Name is %q: it must be another for each upstream", i, u.Name)
		}
		names[u.Name] = true
		if u.Transport == nil || u.Transport.hub == nil {
			fault("Upstreams[%d].Transport is nil or zero: New must make it", i)
		}
		p.upstreams = append(p.upstreams, &upstream{Upstream: u})
	}
	checkPatience(cfg.MaxWait, cfg.Retry, fault)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

// RoundTrip sends a request to an upstream. It does not change the request. If no upstream has room
// within PoolConfig.MaxWait the error is a *PoolBusyError. If no upstream could be reached it wraps
// the errors of all. Other errors are those of the Transport that has sent the request, or could
// not decide on it.
func (p *Pool) RoundTrip(req *http.Request) (*http.Response, error) {
	if p == nil || len(p.upstreams) == 0 {
		closeBody(req)
		return nil, errZero
	}
	s := &search{pool: p, given: req, req: req, patience: patienceOf(req, p.cfg.MaxWait), order: p.order(req)}
	return s.run()
}

// CloseIdleConnections closes those of all upstreams, as http.Client.CloseIdleConnections asks.
func (p *Pool) CloseIdleConnections() {
	for _, u := range p.upstreams {
		u.Transport.CloseIdleConnections()
	}
}

// order returns the upstreams in the order in which a request asks them: by rendezvous hashing if
// it is sticky.
func (p *Pool) order(req *http.Request) (all []*candidate) {
	for _, u := range p.upstreams {
		all = append(all, &candidate{upstream: u})
	}
	key := ""
	if p.cfg.Sticky != nil {
		key = p.cfg.Sticky(req)
	}
	if key != "" {
		slices.SortStableFunc(all, func(a, b *candidate) int {
			return cmp.Compare(score(key, b.Name), score(key, a.Name))
		})
	}
	return all
}

// score is the rank of an upstream for a sticky value.
func score(key, name string) uint64 {
	sum := sha256.Sum256([]byte(name + "\x00" + key))
	return binary.BigEndian.Uint64(sum[:])
}
