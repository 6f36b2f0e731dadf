// Package provider is an upstream that enforces its limits exactly, for tests and examples of package
// outbound. It refuses in the forms of real providers, and remembers every request.
package provider

import (
	"net/http"
	"sync"
	"time"
)

// Config configures a Provider.
type Config struct {
	// Limits are enforced for each host, credential and model together, all or nothing.
	Limits []Limit
	// Streams caps how many responses of one host, credential and model run at a time. Zero caps
	// nothing.
	Streams int
	// Form is how the provider refuses and what its responses tell.
	Form Form
	// Usage returns the tokens of a request. The provider counts them when the request comes, and
	// states them in the response. Nil is a token for each 4 bytes of the body, and max_tokens.
	Usage func(Request) (prompt, output int64)
	// Refunds counts max_tokens when a request comes, and gives back what the output left of them when
	// the response has ended.
	Refunds bool
	// Took is how long a response takes, from its header on. A stream sends an event at its start and
	// another at its end.
	Took time.Duration
	// Now is the clock of the limits. Nil is time.Now.
	Now func() time.Time
}

// Provider is an http.Handler. It is safe for concurrent use.
type Provider struct {
	cfg Config

	mu       sync.Mutex
	accounts map[scope]*account
	arrivals []Arrival
	counts   Counts
}

// scope is whose limits a request counts on.
type scope struct{ host, credential, model string }

// account is the state of one scope.
type account struct {
	states []state // of each limit
	open   int
	closed time.Time // until then every request is refused
}

// Arrival is one request that came.
type Arrival struct {
	At      time.Time
	Model   string
	ID      string // the header X-Request-Id
	Refused bool
	Why     string // the name of the limit, "streams" or "closed", if it was refused
}

// Counts are the numbers of requests since the start.
type Counts struct {
	Accepted, Refused int64
	Tokens            int64 // of the accepted ones
	Open, MostOpen    int   // responses that run, and the most that ever ran
}

// New returns a provider whose limits have nothing used.
func New(cfg Config) *Provider {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Usage == nil {
		cfg.Usage = func(q Request) (int64, int64) { return (q.Bytes + 3) / 4, q.MaxTokens }
	}
	return &Provider{cfg: cfg, accounts: make(map[scope]*account)}
}

// Counts returns the numbers of requests so far.
func (p *Provider) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// Arrivals returns every request so far, in the order in which they came.
func (p *Provider) Arrivals() []Arrival {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Arrival(nil), p.arrivals...)
}

// Close refuses every request for a model for a time from now on, in all accounts that have asked for
// it before.
func (p *Provider) Close(model string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s, a := range p.accounts {
		if s.model == model {
			a.closed = p.cfg.Now().Add(d)
		}
	}
}

// ServeHTTP implements http.Handler.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := read(r)
	prompt, output := p.cfg.Usage(q)
	tokens, back := prompt+output, int64(0)
	if p.cfg.Refunds {
		back = max(0, q.MaxTokens-output)
	}
	v := p.judge(scopeOf(r, q.Model), q, tokens+back)
	p.cfg.Form.tell(w.Header(), &v)
	if v.refused {
		p.cfg.Form.refuse(w, &v)
		return
	}
	defer p.end(v.account, back)
	answer(w, r, q, prompt, output, p.cfg.Took)
}

func scopeOf(r *http.Request, model string) scope {
	credential := r.Header.Get("Authorization")
	if credential == "" {
		credential = r.Header.Get("X-Api-Key")
	}
	return scope{r.Host, credential, model}
}

// verdict is what becomes of a request.
type verdict struct {
	account *account
	now     time.Time
	model   string
	refused bool
	why     string
	unit    string
	wait    time.Duration // until the same request may pass, or 0 if that is not known
	left    []left
}

// judge counts a request if every limit has room for it.
func (p *Provider) judge(s scope, q Request, tokens int64) verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	a := p.accounts[s]
	if a == nil {
		a = &account{states: make([]state, len(p.cfg.Limits))}
		p.accounts[s] = a
	}
	v := verdict{account: a, now: now, model: q.Model}
	switch {
	case now.Before(a.closed):
		v.refused, v.why, v.unit, v.wait = true, "closed", Requests, a.closed.Sub(now)
	case p.cfg.Streams > 0 && a.open >= p.cfg.Streams:
		v.refused, v.why, v.unit = true, "streams", Requests
	}
	for i := range p.cfg.Limits {
		l := &p.cfg.Limits[i]
		wait := a.states[i].wait(l, now, l.cost(tokens))
		if wait > v.wait {
			v.refused, v.why, v.unit, v.wait = true, l.name(), l.Unit, wait
		}
	}
	for i := range p.cfg.Limits {
		l := &p.cfg.Limits[i]
		if !v.refused {
			a.states[i].spend(l, l.cost(tokens))
		}
		v.left = append(v.left, a.states[i].left(l, now))
	}
	p.count(&v, q, tokens)
	return v
}

func (p *Provider) count(v *verdict, q Request, tokens int64) {
	p.arrivals = append(p.arrivals, Arrival{v.now, q.Model, q.ID, v.refused, v.why})
	if v.refused {
		p.counts.Refused++
		return
	}
	p.counts.Accepted++
	p.counts.Tokens += tokens
	v.account.open++
	p.counts.Open++
	p.counts.MostOpen = max(p.counts.MostOpen, v.account.open)
}

// end ends a response, and gives tokens back.
func (p *Provider) end(a *account, tokens int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a.open--
	p.counts.Open--
	p.counts.Tokens -= tokens
	for i := range p.cfg.Limits {
		if l := &p.cfg.Limits[i]; l.Unit == Tokens && tokens > 0 {
			a.states[i].spend(l, -tokens)
		}
	}
}
