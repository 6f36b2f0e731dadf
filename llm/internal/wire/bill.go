package wire

import (
	"bytes"
	"cmp"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// bill is what the response says of its price, besides the usage of its model.
type bill struct {
	units     map[string]int64 // whose names are those of the table
	otherwise unit             // that counts if no tokens are stated
	items     items
	cited     bool  // the answer cites a page of the web
	calls     int64 // of all tools that the server has run
	extra     Usage // of the same model, and not in its usage
	drawn     Usage // of a tool that draws
	others    []ModelUsage

	cost, upstream int64 // in millionths of a micro-dollar
	costed, ownKey bool
}

// unit is a number of pieces.
type unit struct {
	name string
	n    int64
}

const (
	maxOthers  = 16 // further models of one response
	maxQueries = 64 // searches of one event
)

// set sets the number of pieces of a unit. A zero erases nothing, but says that the unit is stated.
func (b *bill) set(name string, n int64) {
	if b.units == nil {
		b.units = make(map[string]int64)
	}
	b.units[name] = cmp.Or(n, b.units[name])
}

// query counts a search, unless it is empty or comes twice. Gemini 2.5 bills prompts with searches,
// and Gemini 3 the searches.
func (r *reader) query(text string) {
	e := &r.event
	if text == "" || slices.Contains(e.queries, text) || len(e.queries) == maxQueries {
		return
	}
	e.queries = append(e.queries, text)
	r.bill.set(webSearch, int64(len(e.queries)))
	r.bill.set("grounded_prompt", 1)
}

// other adds what another model used. Those beyond maxOthers count with the last one.
func (e *event) other(model string, u Usage) {
	if n := len(e.others); n == maxOthers {
		e.others[n-1].Usage = e.others[n-1].Usage.plus(u)
		return
	}
	e.others = append(e.others, ModelUsage{model, u})
}

// cost returns the bill that the server states. That in a header counts for a document: that of a
// stream is stated before its output is known.
func (r *reader) cost() Money {
	b := &r.bill
	switch {
	case !b.costed && r.framing == documentFraming && r.found.Complete:
		return r.price
	case b.ownKey: // otherwise both state the same money
		return Money{Known: b.costed, Pico: b.cost + b.upstream}
	}
	return Money{Known: b.costed, Pico: b.cost}
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
	text := strings.ToLower(string(value))
	for _, prefix := range [...]string{"service_tier_", "on_demand", "_"} { // of Gemini's and of Vertex's tiers
		text = strings.TrimPrefix(text, prefix)
	}
	if text == "" || had[name] == text {
		return had
	}
	labels := make(map[string]string)
	maps.Copy(labels, had)
	labels[name] = text
	return labels
}

// webSearch is the unit of searches that a server states, or of those that its items show.
const webSearch = "web_search"

// pieces returns the units and the items as a map. Images that were drawn have a usage, or count as
// pieces. An answer that cites a page of the web has searched, if it says nothing else of that.
// Calls of tools that have no unit of their own are a unit too. tokens says that some are stated.
func (b *bill) pieces(tokens bool) (all map[string]int64) {
	add := func(name string, n int64) {
		if n > 0 {
			if all == nil {
				all = make(map[string]int64)
			}
			all[name] = n
		}
	}
	add(webSearch, b.items.searches)
	add("file_search", b.items.files)
	add("container", int64(len(b.items.containers)))
	if b.drawn == (Usage{}) {
		add("image_generation", b.items.images)
	}
	if !tokens {
		add(b.otherwise.name, b.otherwise.n)
	}
	for name, n := range b.units {
		if n == 0 { // the items are not billed, such as searches that have failed
			delete(all, name)
		}
		add(name, n)
	}
	if _, stated := b.units[webSearch]; b.cited && !stated && all[webSearch] == 0 {
		add(webSearch, 1)
	}
	calls := b.calls
	for name, n := range all {
		if !beside[name] {
			calls -= n
		}
	}
	add("tool_call", calls)
	return all
}

// beside are units that are no calls of tools.
var beside = map[string]bool{
	"source": true, "x_post": true, "x_user": true, "audio_ms": true, "citation_tokens": true,
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
	return q.Int64(), q.IsInt64() && q.Int64() <= mostPico
}

// mostPico is the largest amount that is believed: a million dollars. A larger one is none.
const mostPico = 1_000_000_000_000_000_000
