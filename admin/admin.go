// Package admin is a page on which operators see a Gate work, ask why somebody is denied and until
// when, and change that: reset, give back, raise, block, evict, override.
//
//	var live admin.Live
//	gate, err := core.NewRedis(client, core.Config{Observe: live.Observe})
//	page, err := admin.New(admin.Config{
//		Gate: gate, Policies: policies, Semaphores: semaphores, Live: &live,
//		Read:  operatorOf, // of your own authentication
//		Write: adminOf,    // nil: nobody changes anything
//	})
//	mux.Handle("/headgate/", http.StripPrefix("/headgate", page))
//
// The page brings no authentication. Config.Read names the operator of a request, or refuses it;
// Config.Write does so for changes. Changes are POST requests of the page's own origin.
//
// What the page shows of a key is read from Redis, and so is the same in all processes. What is
// denied now, who is refused most and which servers fail is what this process has seen.
package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/plans"
)

// Config configures an Admin.
type Config struct {
	// Gate is required.
	Gate *core.Gate
	// Policies and Semaphores are those that the page shows. Names are unique in each.
	Policies   []*core.Policy
	Semaphores []*semaphore.Semaphore
	// Plans is asked for the plan and the override of a key. It may be nil.
	Plans *plans.Book
	// Live is what this process sees happen; see [Live]. If it is nil, the page has no live figures.
	Live *Live

	// Read returns the name of the operator that may read the page, or an error: then the answer is
	// 403. An empty name is refused too. It is required, and is called for each request. The error is
	// not shown.
	Read func(*http.Request) (operator string, err error)
	// Write is Read for changes. If it is nil, nobody may change anything.
	Write func(*http.Request) (operator string, err error)
	// Origins are origins besides the page's own that may send changes, such as
	// https://ops.example.com, where a proxy changes the Host of requests.
	Origins []string

	// Hosts are the names by which browsers reach the page, without a port, such as ops.example.com.
	// Requests of other names are answered with 421: a foreign site whose name leads to the address
	// of the page could read it. IP addresses, localhost, names below localhost and the hosts of
	// Origins need no entry. The entry "*" is every name; it is for servers that check the name.
	Hosts []string

	// Name returns what the page calls a key whose parts are hashes, such as the name of a customer.
	// If it returns an empty text, or is nil, that is the key.
	Name func(core.Key) string
	// Find returns the key of what an operator looks for, such as the name of a customer. If it
	// returns false, or is nil, the text is the key: its parts with slashes between them.
	Find func(ctx context.Context, text string) (core.Key, bool)
	// Keys returns the keys on which a subject's requests count under a policy. If it is nil, those
	// are the subject's own key, and of the keys around it, such as that of its tenant, the ones
	// that have spent something under the policy.
	Keys func(p *core.Policy, subject core.Key) []core.Key
	// Tenants returns the names by which Plans knows a subject, outermost first. If it is nil, that
	// is the outermost part of its key.
	Tenants func(subject core.Key) []string

	// Observe is called with an [*Event] after each change. It must be fast and safe for concurrent
	// use. It may be nil.
	Observe func(context.Context, core.Event)
}

// Admin is the page. It is an [http.Handler], for requests whose paths begin behind its prefix; see
// [http.StripPrefix]. It is safe for concurrent use. The zero value is of no use.
type Admin struct {
	cfg       Config
	hub       *hub.Hub
	inspector *inspect.Inspector
	foreign   http.CrossOriginProtection
	hosts     map[string]bool // in lower case
	templates *template.Template
	pages     map[string]page
	started   time.Time
	done      done
}

// New returns an Admin, or every fault of the configuration at once.
func New(cfg Config) (*Admin, error) {
	var errs []error
	if cfg.Read == nil {
		errs = append(errs, errors.New("admin: Config.Read is nil: it must say who may read"))
	}
	a := &Admin{cfg: cfg, started: time.Now(), hosts: make(map[string]bool)}
	for i, origin := range cfg.Origins {
		if err := a.foreign.AddTrustedOrigin(origin); err != nil {
			errs = append(errs, fmt.Errorf("admin: Config.Origins[%d]: %w", i, err))
		} else if u, err := url.Parse(origin); err == nil {
			a.hosts[strings.ToLower(u.Hostname())] = true
		}
	}
	for i, host := range cfg.Hosts {
		if host == "" || host != "*" && strings.ContainsAny(host, "/:*") {
			errs = append(errs, fmt.Errorf("admin: Config.Hosts[%d] is %q: it must be a name without a port", i, host))
		}
		a.hosts[strings.ToLower(host)] = true
	}
	var err error
	a.inspector, err = inspect.New(inspect.Config{
		Gate: cfg.Gate, Policies: cfg.Policies, Semaphores: cfg.Semaphores, Plans: cfg.Plans,
		Keys: cfg.Keys, Tenants: cfg.Tenants,
	}, "admin")
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	a.hub = core.Inside(hub.Pass{}).Of(cfg.Gate)
	if a.templates, err = a.parse(); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	a.pages = a.routes()
	return a, nil
}

// page is a handler and the method of its requests.
type page struct {
	method  string
	handler http.Handler
}

// routes are the pages by their paths below the prefix.
func (a *Admin) routes() map[string]page {
	get := func(h http.HandlerFunc) page { return page{http.MethodGet, a.reads(h)} }
	asset := func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, files, "page"+r.URL.Path) }
	return map[string]page{
		"/":          get(a.overview),
		"/subject":   get(a.subject),
		"/blocked":   get(a.blocked),
		"/style.css": get(asset),
		"/page.js":   get(asset),
		"/confirm":   {http.MethodGet, a.writes(a.confirm)},
		"/act":       {http.MethodPost, a.writes(a.act)},
	}
}

// ServeHTTP implements http.Handler.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	p, known := a.pages[r.URL.Path]
	switch {
	case !a.answersTo(r.Host):
		http.Error(w, fmt.Sprintf("This page does not answer to the host %.100q. Its names stand in "+
			"admin.Config.Hosts.", r.Host), http.StatusMisdirectedRequest)
	case !known:
		a.reads(a.missing).ServeHTTP(w, r)
	case r.Method != p.method && (p.method != http.MethodGet || r.Method != http.MethodHead):
		w.Header().Set("Allow", p.method)
		http.Error(w, "This page takes "+p.method+" requests.", http.StatusMethodNotAllowed)
	default:
		p.handler.ServeHTTP(w, r)
	}
}

// name returns what the page calls a key.
func (a *Admin) name(k core.Key) string {
	var name string
	if a.cfg.Name != nil {
		name = a.cfg.Name(k)
	}
	return cmp.Or(name, inspect.FormatKey(k))
}

// find returns the key of what an operator looks for.
func (a *Admin) find(ctx context.Context, text string) (core.Key, error) {
	if a.cfg.Find != nil {
		if k, ok := a.cfg.Find(ctx, text); ok {
			return k, nil
		}
	}
	return inspect.ParseKey(text)
}

// tell tells the observers of a change.
func (a *Admin) tell(ctx context.Context, e Event) {
	if a.cfg.Observe != nil {
		a.cfg.Observe(ctx, &e)
	}
}
