package llm

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/headgate/headgate/llm/internal/pricefile"
)

// priceList is the models of all price files.
type priceList struct {
	models  map[string]*learnt // by provider/name, and by names that one provider uses
	matches []priceEntry       // those that go by further names
	unclear map[string]bool    // names that several providers use for different prices
	unread  []string

	mu    sync.Mutex
	known map[string]*learnt // by further names that were asked for; nil is unknown
}

// maxKnown bounds the further names that a list remembers. Clients may invent any number of them.
const maxKnown = 4096

type priceEntry struct {
	rank  int // of the provider
	match func(string) bool
	model *learnt
	name  string
}

func newPriceList(files []priceFile, providers []string) *priceList {
	l := &priceList{
		models: make(map[string]*learnt), known: make(map[string]*learnt),
		unclear: make(map[string]bool),
	}
	users := make(map[string][]priceEntry) // of each name
	for _, f := range files {
		l.unread = append(l.unread, f.read.Unread...)
		for _, e := range f.read.Entries {
			rank := slices.Index(providers, e.Provider)
			if rank < 0 && providers != nil {
				continue
			}
			entry := priceEntry{rank, e.Match, modelFrom(e.Model), e.Name}
			l.models[e.Name] = entry.model
			users[e.Name] = append(users[e.Name], entry)
			if e.Alias != "" {
				users[e.Alias] = append(users[e.Alias], entry)
			}
			if e.Match != nil {
				l.matches = append(l.matches, entry)
			}
		}
	}
	for name, entries := range users {
		if m := preferred(entries); m != nil {
			l.models[name] = m
		} else if l.models[name] == nil { // otherwise it is the only name of one
			l.unclear[name] = true
			l.unread = append(l.unread, fmt.Sprintf("%s: name is used by %s and others for different "+
				"prices: it is unknown, unless Providers decides", name, entries[0].name))
		}
	}
	slices.Sort(l.unread)
	return l
}

// preferred returns the model of the entries of the lowest rank, or nil if they differ.
func preferred(entries []priceEntry) *learnt {
	lowest := slices.MinFunc(entries, func(a, b priceEntry) int { return cmp.Compare(a.rank, b.rank) })
	for _, e := range entries {
		if e.rank == lowest.rank && !reflect.DeepEqual(e.model.Model, lowest.model.Model) {
			return nil
		}
	}
	return lowest.model
}

// find returns the model of a name, or nil.
func (l *priceList) find(name string) *learnt {
	if m := l.models[name]; m != nil || l.unclear[name] || len(l.matches) == 0 {
		return m
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m, ok := l.known[name]
	if ok {
		return m
	}
	var found []priceEntry
	lower := strings.ToLower(name)
	for _, e := range l.matches {
		if e.match(lower) {
			found = append(found, e)
		}
	}
	if len(found) > 0 {
		m = preferred(found)
	}
	if len(l.known) >= maxKnown {
		clear(l.known)
	}
	l.known[strings.Clone(name)] = m
	return m
}

// modelFrom returns the model of a price file.
func modelFrom(m pricefile.Model) *learnt {
	e := &learnt{Model: Model{MaxOutput: m.MaxOutput, Tariff: Tariff{
		Price: priceFrom(m.Price), Units: m.Units, Factors: m.Factors,
	}}}
	for _, s := range m.Steps {
		e.Tariff.Steps = append(e.Tariff.Steps, Step{s.Label, s.From, priceFrom(s.Price)})
	}
	return e
}

func priceFrom(p pricefile.Price) Price {
	return Price{
		Input: p[pricefile.Input], CacheRead: p[pricefile.CacheRead],
		CacheWrite: p[pricefile.CacheWrite], CacheWriteLong: p[pricefile.CacheWriteLong],
		AudioIn: p[pricefile.AudioIn], ImageIn: p[pricefile.ImageIn], Output: p[pricefile.Output],
		AudioOut: p[pricefile.AudioOut], ImageOut: p[pricefile.ImageOut],
		Reasoning: p[pricefile.Reasoning],
	}
}
