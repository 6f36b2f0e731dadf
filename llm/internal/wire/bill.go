package wire

import (
	"bytes"
	"cmp"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// bill is what one event says of the price of the response, besides the usage of its model.
type bill struct {
	units []unit // at most maxUnits
	items items

	otherwise unit // that counts if neither it nor tokens are stated

	listed  bool     // the items are all of the response
	cited   bool     // the answer cites a page of the web
	calls   int64    // of all tools that the server has run
	queries []string // of searches
	extra   Usage    // of the same model, and not in its usage
	drawn   Usage    // of a tool that draws
	others  []ModelUsage

	cost, upstream int64 // in millionths of a micro-dollar
	costed, ownKey bool
}

// unit is a number of pieces.
type unit struct {
	name string
	n    int64
}

const (
	maxUnits   = 16 // kinds of pieces in one event
	maxOthers  = 16 // further models of one response
	maxQueries = 64 // searches of one event
)

// set sets the number of pieces of a unit, unless there are too many units or it is 0: a zero erases
// nothing. It reports whether that has changed something.
func (b *bill) set(name string, n int64) bool {
	for i := range b.units {
		if u := &b.units[i]; u.name == name {
			changed := n > 0 && u.n != n
			if changed {
				u.n = n
			}
			return changed
		}
	}
	if n == 0 || len(b.units) == maxUnits {
		return false
	}
	b.units = append(b.units, unit{name, n})
	return true
}

// query counts a search, unless it is empty or comes twice. Gemini 2.5 bills prompts with searches,
// and Gemini 3 the searches.
func (b *bill) query(text string) {
	if text == "" || slices.Contains(b.queries, text) || len(b.queries) == maxQueries {
		return
	}
	b.queries = append(b.queries, text)
	b.set(webSearch, int64(len(b.queries)))
	b.set("grounded_prompt", 1)
}

// other adds what another model used. Those beyond maxOthers count with the last one.
func (b *bill) other(model string, u Usage) {
	i := slices.IndexFunc(b.others, func(o ModelUsage) bool { return o.Model == model })
	if i < 0 && len(b.others) == maxOthers {
		i = maxOthers - 1
	}
	if i >= 0 {
		b.others[i].Usage = b.others[i].Usage.plus(u)
		return
	}
	b.others = append(b.others, ModelUsage{model, u})
}

// items are the calls of tools that the server runs.
type items struct {
	searches, files, images int64
	containers              []string // each is billed once
}

// maxContainers is the number of containers that are told apart.
const maxContainers = 64

func (i *items) container(id string) {
	if id != "" && !slices.Contains(i.containers, id) && len(i.containers) < maxContainers {
		i.containers = append(i.containers, id)
	}
}

func (i *items) add(o *items) {
	i.searches += o.searches
	i.files += o.files
	i.images += o.images
	for _, id := range o.containers {
		i.container(id)
	}
}

func (i *items) empty() bool { return i.searches+i.files+i.images+int64(len(i.containers)) == 0 }

// withLabel returns labels with one more. It makes a new map, since others may hold the old one.
func withLabel(had map[string]string, name string, value []byte) map[string]string {
	if old, ok := had[name]; ok && strings.EqualFold(old, string(value)) {
		return had // without an allocation
	}
	const onDemand = "on_demand" // the prefix of Vertex's tiers
	text := strings.TrimPrefix(strings.TrimPrefix(strings.ToLower(string(value)), onDemand), "_")
	if text == "" || had[name] == text {
		return had
	}
	labels := maps.Clone(had)
	if labels == nil {
		labels = make(map[string]string)
	}
	labels[name] = text
	return labels
}

// commitBill adds what the event said of the price.
func (r *reader) commitBill() {
	b := &r.event.bill
	if r.commitPieces(b) {
		r.found.Units = r.total.pieces()
	}
	if b.extra != (Usage{}) || len(b.others) > 0 { // a list replaces the last one
		r.total.extra, r.total.others = b.extra, b.others
	}
	if b.costed {
		r.commitCost(b)
	}
}

// commitPieces adds the pieces that the event said, and reports whether that has changed them.
func (r *reader) commitPieces(b *bill) (changed bool) {
	if o := b.otherwise; o.n > 0 && r.event.counts.stated|r.counts.stated == 0 {
		changed = r.total.set(o.name, o.n)
	}
	for _, u := range b.units {
		if r.total.set(u.name, u.n) {
			changed = true
		}
	}
	if b.calls > 0 || b.cited || b.drawn != (Usage{}) {
		r.total.calls, r.total.cited = max(r.total.calls, b.calls), r.total.cited || b.cited
		r.total.drawn, changed = cmp.Or(b.drawn, r.total.drawn), true
	}
	switch {
	case r.event.kind == itemEvent:
		r.total.items.add(&b.items)
		changed = changed || !b.items.empty()
	case b.listed && !b.items.empty():
		r.total.items, changed = b.items, true
	}
	return changed
}

// commitCost adds the bill that the event states.
func (r *reader) commitCost(b *bill) {
	if b.cost > 0 {
		r.total.cost = b.cost
	}
	if b.upstream > 0 {
		r.total.upstream = b.upstream
	}
	stated := Money{Known: true, Pico: r.total.cost}
	if b.ownKey { // otherwise both state the same money
		stated.Pico += r.total.upstream
	}
	r.found.Stated = stated
}

// webSearch is the unit of searches that a server states, or of those that its items show.
const webSearch = "web_search"

// pieces returns the units and the items as a map. Images that were drawn have a usage, or count as
// pieces. An answer that cites a page of the web has searched, if it says nothing else of that.
// Calls of tools that have no unit of their own are a unit too.
func (b *bill) pieces() map[string]int64 {
	all := map[string]int64{
		webSearch: b.items.searches, "file_search": b.items.files,
		"container": int64(len(b.items.containers)), "image_generation": b.items.images,
	}
	for _, u := range b.units {
		all[u.name] = u.n
	}
	if b.drawn != (Usage{}) {
		all["image_generation"] = 0
	}
	if b.cited {
		all[webSearch] = max(all[webSearch], 1)
	}
	calls := b.calls
	for name, n := range all {
		if !beside[name] {
			calls -= n
		}
	}
	all["tool_call"] = max(0, calls)
	maps.DeleteFunc(all, func(_ string, n int64) bool { return n == 0 })
	if len(all) == 0 {
		return nil
	}
	return all
}

// beside are units that are no calls of tools.
var beside = map[string]bool{"source": true, "audio_ms": true, "citation_tokens": true}

// picoOf returns a decimal number times a factor, rounded up: dollars as millionths of a
// micro-dollar with a factor of 10^12. It reports false for what is no such number, or has an
// absurd exponent.
func picoOf(number []byte, factor int64) (n int64, ok bool) {
	exponent := bytes.IndexAny(number, "eE")
	if len(bytes.Trim(number, "0123456789.eE+-")) > 0 ||
		exponent >= 0 && len(number)-exponent > len("e-99") {
		return 0, false
	}
	r, ok := new(big.Rat).SetString(string(number))
	if !ok || r.Sign() < 0 {
		return 0, false
	}
	r.Mul(r, new(big.Rat).SetInt64(factor))
	q, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64(), q.IsInt64() && q.Int64() <= mostPico
}

// mostPico is the largest amount that is believed: a million dollars. A larger one is none.
const mostPico = 1_000_000_000_000_000_000
