package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"time"

	"github.com/headgate/headgate/llm"
)

// plans is what a plans file says.
type plans struct {
	models  map[string]llm.Model
	plans   map[string]*plan
	tenants []*tenant // in the order of the file
	users   map[[sha256.Size]byte]*user
}

// plan is what each of its tenants may use.
type plan struct {
	RequestsPerMinute     int64  `json:"requests_per_minute"`
	TokensPerMinute       int64  `json:"tokens_per_minute"`
	OutputTokensPerMinute int64  `json:"output_tokens_per_minute"` // 0 sets no limit
	MicroDollarsPerMonth  int64  `json:"micro_dollars_per_month"`
	StreamsPerTenant      int64  `json:"streams_per_tenant"`
	StreamsPerUser        int64  `json:"streams_per_user"`
	Queue                 int64  `json:"queue"`    // of each user; 0 refuses what finds no slot
	MaxWait               string `json:"max_wait"` // in the queue, such as 30s

	maxWait time.Duration
}

type tenant struct {
	name, plan string
	users      []*user // in the order of the file
}

// user is whom an API key belongs to.
type user struct {
	name   string
	tenant *tenant
}

// The shapes of the entries in the file.
type (
	modelEntry struct {
		Price     priceEntry `json:"price"` // of a million tokens, in micro-dollars
		MaxOutput int64      `json:"max_output"`
	}
	priceEntry struct {
		Input      int64 `json:"input"`
		CacheRead  int64 `json:"cache_read"`
		CacheWrite int64 `json:"cache_write"`
		Output     int64 `json:"output"`
	}
	tenantEntry struct {
		Plan string  `json:"plan"`
		Keys members `json:"keys"` // by user: the SHA-256 of the API key in hexadecimal
	}
)

// maxCount is the largest number in a plan.
const maxCount = 1_000_000_000_000

func readPlans(path string) (*plans, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("PLANS: %w", err)
	}
	p, err := parsePlans(text)
	if err != nil {
		return nil, fmt.Errorf("PLANS: %s:\n%w", path, err)
	}
	return p, nil
}

// parsePlans returns the plans, or every fault of the file at once.
func parsePlans(text []byte) (*plans, error) {
	var f faults
	file, _ := decode[struct {
		Comment string  `json:"comment"`
		Models  members `json:"models"`
		Plans   members `json:"plans"`
		Tenants members `json:"tenants"`
	}](&f, "", text)
	p := &plans{
		models: make(map[string]llm.Model),
		plans:  make(map[string]*plan),
		users:  make(map[[sha256.Size]byte]*user),
	}
	if len(f) > 0 {
		return nil, f.err()
	}
	for at, m := range file.Models.entries(&f, "models") {
		if entry, ok := decode[modelEntry](&f, at, m.value); ok {
			p.models[m.name] = entry.model(&f, at)
		}
	}
	for at, m := range file.Plans.entries(&f, "plans") {
		p.plans[m.name] = nil // tenants may name it, whatever its faults are
		if entry, ok := decode[plan](&f, at, m.value); ok {
			entry.check(&f, at)
			p.plans[m.name] = &entry
		}
	}
	for at, m := range file.Tenants.entries(&f, "tenants") {
		f.checkName(at, m.name)
		if entry, ok := decode[tenantEntry](&f, at, m.value); ok {
			p.addTenant(&f, at, m.name, entry)
		}
	}
	return p, f.err()
}

func (m modelEntry) model(f *faults, at string) llm.Model {
	f.between(at+".max_output", m.MaxOutput, 0, maxCount)
	return llm.Model{
		Tariff:    llm.Tariff{Price: m.Price.price(f, at+".price")},
		MaxOutput: m.MaxOutput,
	}
}

func (p priceEntry) price(f *faults, at string) llm.Price {
	f.between(at+".input", p.Input, 0, maxCount)
	f.between(at+".cache_read", p.CacheRead, 0, maxCount)
	f.between(at+".cache_write", p.CacheWrite, 0, maxCount)
	f.between(at+".output", p.Output, 0, maxCount)
	return llm.Price{
		Input: p.Input, CacheRead: p.CacheRead, CacheWrite: p.CacheWrite, Output: p.Output,
	}
}

func (p *plan) check(f *faults, at string) {
	f.between(at+".requests_per_minute", p.RequestsPerMinute, 1, maxCount)
	f.between(at+".tokens_per_minute", p.TokensPerMinute, 1, maxCount)
	f.between(at+".output_tokens_per_minute", p.OutputTokensPerMinute, 0, maxCount)
	f.between(at+".micro_dollars_per_month", p.MicroDollarsPerMonth, 1, maxCount)
	f.between(at+".streams_per_tenant", p.StreamsPerTenant, 1, 1_000_000)
	f.between(at+".streams_per_user", p.StreamsPerUser, 1, 1_000_000)
	f.between(at+".queue", p.Queue, 0, 10_000)
	if p.MaxWait != "" {
		var err error
		if p.maxWait, err = time.ParseDuration(p.MaxWait); err != nil || p.maxWait <= 0 {
			f.add(at+".max_wait", "is %q: it must be a duration above 0, such as 30s", p.MaxWait)
			return
		}
	}
	if (p.Queue > 0) != (p.maxWait > 0) {
		f.add(at, "has a queue of %d and a max_wait of %q: set both or neither", p.Queue, p.MaxWait)
	}
}

func (p *plans) addTenant(f *faults, at, name string, entry tenantEntry) {
	t := &tenant{name: name, plan: entry.Plan}
	p.tenants = append(p.tenants, t)
	if _, ok := p.plans[entry.Plan]; !ok {
		f.add(at+".plan", "is %q, which is not in plans", entry.Plan)
	}
	for at, m := range entry.Keys.entries(f, at+".keys") {
		f.checkName(at, m.name)
		digest, ok := decode[string](f, at, m.value)
		if !ok {
			continue
		}
		sum, err := hex.DecodeString(digest)
		if err != nil || len(sum) != sha256.Size {
			f.add(at, "is no SHA-256: it must be 64 hexadecimal digits")
			continue
		}
		u := &user{m.name, t}
		if other, taken := p.users[[sha256.Size]byte(sum)]; taken {
			f.add(at, "is also the key of tenants.%s.keys.%s", other.tenant.name, other.name)
		}
		p.users[[sha256.Size]byte(sum)] = u
		t.users = append(t.users, u)
	}
}

// userOf returns the user of an API key, or nil.
func (p *plans) userOf(key string) *user { return p.users[sha256.Sum256([]byte(key))] }

// named returns the user of these names, or nil.
func (p *plans) named(tenant, name string) *user {
	for _, t := range p.tenants {
		for _, u := range t.users {
			if t.name == tenant && u.name == name {
				return u
			}
		}
	}
	return nil
}
