package wire

import (
	"bytes"
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

	listed bool  // the items are all of the response
	extra  Usage // of the same model, and not in its usage
	others []ModelUsage

	cost, upstream int64 // in millionths of a micro-dollar
	costed, ownKey bool
}

// unit is a number of pieces.
type unit struct {
	name string
	n    int64
}

const (
	maxUnits  = 16 // kinds of pieces in one event
	maxOthers = 16 // further models of one response
)

// unit returns the unit of a name, or nil if there are too many. It is valid until the next call.
func (b *bill) unit(name string) *unit {
	for i := range b.units {
		if b.units[i].name == name {
			return &b.units[i]
		}
	}
	if len(b.units) == maxUnits {
		return nil
	}
	b.units = append(b.units, unit{name: name})
	return &b.units[len(b.units)-1]
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
	searches, files int64
	containers      []string // each is billed once
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
	for _, id := range o.containers {
		i.container(id)
	}
}

func (i *items) empty() bool { return i.searches+i.files+int64(len(i.containers)) == 0 }

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

// chooseOtherwise counts the piece that stands for others, unless its like is stated.
func (b *bill) chooseOtherwise() {
	if b.otherwise.n == 0 {
		return
	}
	if u := b.unit(b.otherwise.name); u != nil && u.n == 0 {
		u.n = b.otherwise.n
	}
}

// commitBill adds what the event said of the price.
func (r *reader) commitBill() {
	b, f := &r.event.bill, &r.found
	changed := false
	if r.event.counts.stated|r.counts.stated == 0 {
		b.chooseOtherwise()
	}
	for _, u := range b.units {
		total := r.total.unit(u.name)
		if total != nil && u.n > 0 {
			changed = changed || total.n != u.n
			total.n = u.n
		}
	}
	switch {
	case r.event.kind == itemEvent:
		r.total.items.add(&b.items)
		changed = changed || !b.items.empty()
	case b.listed && !b.items.empty():
		r.total.items, changed = b.items, true
	}
	if changed {
		f.Units = r.total.pieces()
	}
	if b.extra != (Usage{}) || len(b.others) > 0 { // a list replaces the last one
		r.total.extra, r.total.others = b.extra, b.others
	}
	if b.costed {
		r.commitCost(b)
	}
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

// pieces returns the units and the items as a map.
func (b *bill) pieces() map[string]int64 {
	all := make(map[string]int64)
	all[webSearch], all["file_search"] = b.items.searches, b.items.files
	all["container"] = int64(len(b.items.containers))
	for _, u := range b.units {
		if u.name == webSearch || u.n > 0 {
			all[u.name] = u.n
		}
	}
	maps.DeleteFunc(all, func(_ string, n int64) bool { return n == 0 })
	if len(all) == 0 {
		return nil
	}
	return all
}

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
	return min(q.Int64(), mostPico), q.IsInt64()
}

// mostPico is the largest amount that is believed: a million dollars.
const mostPico = 1_000_000_000_000_000_000
