package wire

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/llm/internal/jsonscan"
)

// Key implements jsonscan.Visitor.
func (r *reader) Key(s *jsonscan.Scanner, _ *node) {
	r.key = r.keyed[:copy(r.keyed[:], s.Text())]
}

// Begin implements jsonscan.Visitor.
func (r *reader) Begin(_ *jsonscan.Scanner, n *node, kind byte) {
	e := &r.event
	switch n.Role {
	case tellUsage:
		e.usage = e.usage || kind == '{'
	case tellChoices:
		e.choices = kind == '['
	case tellChoice:
		e.choice = true
	case tellError:
		e.fault = true
	case tellItems:
		e.listed = true
	case tellHas:
		r.bill.set(n.Name, 1)
	case tellDetail:
		r.detail = detail{of: n.Name}
	}
}

// End implements jsonscan.Visitor.
func (r *reader) End(s *jsonscan.Scanner, n *node) {
	switch {
	case s.Depth() == 1:
		r.endDocument()
	case n.Role == tellDocument: // an element of an array of documents
		r.commit(true)
		r.event.said = said{}
	case n.Role == tellDetail:
		r.endDetail()
		r.detail = detail{}
	}
}

// Scalar implements jsonscan.Visitor.
func (r *reader) Scalar(s *jsonscan.Scanner, n *node, kind byte) {
	if s.Depth() == 0 {
		r.endDocument()
	}
	e := &r.event
	switch kind {
	case '"':
		r.text(s, n)
	case '0':
		r.number(s.Text(), n)
	case 't':
		e.done = e.done || n.Role == tellDone
		r.bill.ownKey = r.bill.ownKey || n.Role == tellOwnKey
	}
	switch n.Role {
	case tellError:
		e.fault = e.fault || kind != 'n'
	case tellChoice:
		e.choice = true
	case tellUnread:
		r.unnamed("usage "+n.Name, s.Size())
	}
}

// text reads a string.
func (r *reader) text(s *jsonscan.Scanner, n *node) {
	e := &r.event
	switch n.Role {
	case tellText, tellThought, tellThoughtAgain:
		e.texts[n.Role-tellText] += s.Size()
	case tellType:
		if s.Whole() {
			e.kind = r.format.table.Events[string(s.Text())]
		}
	case tellFinish:
		e.finish = true
	case tellStop:
		e.refusal = e.refusal || string(s.Text()) == "refusal"
	case tellObject:
		e.fault = e.fault || string(s.Text()) == "error"
	case tellModel:
		if len(s.Text()) > 0 && string(s.Text()) != r.found.Model {
			r.found.Model = string(s.Text())
		}
	case tellLabel:
		r.found.Labels = withLabel(r.found.Labels, n.Name, s.Text())
	case tellQuery:
		r.query(string(s.Text()))
	case tellDraws:
		r.draws = cmp.Or(r.draws, string(s.Text()))
	default:
		r.detail.text(s.Text(), n.Role)
	}
}

// number reads a number.
func (r *reader) number(text []byte, n *node) {
	switch n.Role {
	case tellErrorCode:
		r.event.fault = r.event.fault || string(text) != "0"
	case tellCost, tellUpstream, tellTicks:
		r.money(text, n.Role)
	case tellMilli, tellMilliElse:
		r.thousandths(text, n)
	default:
		if tokens, ok := tokensOf(text); ok {
			r.tokens(tokens, n)
		}
	}
}

// tokens takes a number of tokens, of pieces or of events.
func (r *reader) tokens(tokens int64, n *node) {
	b, c := &r.bill, &r.event.counts
	switch n.Role {
	case tellSequence:
		r.next = tokens + 1
	case tellUnit:
		b.set(n.Name, tokens)
		if n.Key == "num_search_queries" || n.Key == "citation_tokens" {
			c.set(researchCount, tokens)
		}
	case tellCalls:
		b.calls = max(b.calls, tokens)
	case tellCallIndex:
		b.calls = max(b.calls, tokens+1)
	case tellUnnamed:
		r.unnamed("usage "+string(r.key), tokens)
	case tellDetailCount:
		r.detail.n = tokens
	}
	if r.detail.of != "" {
		c = &r.detail.counts
	}
	if n.Role >= tellNumbers {
		c.set(count(n.Role-tellNumbers), tokens)
	}
}

// thousandths reads a number whose thousandth parts are pieces.
func (r *reader) thousandths(text []byte, n *node) {
	pieces, ok := picoOf(text, 1000)
	b := &r.bill
	switch {
	case !ok || pieces > MaxTokens:
	case n.Role == tellMilliElse:
		b.otherwise = unit{n.Name, pieces}
	default:
		b.set(n.Name, pieces)
	}
}

// unnamed notes what a response states of its use and no path of the table names, unless it is 0.
func (r *reader) unnamed(what string, n int64) {
	f := &r.found
	if n > 0 && len(f.Unnamed) < maxUnnamed && !slices.Contains(f.Unnamed, what) {
		f.Unnamed = append(f.Unnamed, what)
	}
}

// maxUnnamed is the number of things that are noted.
const maxUnnamed = 16

// picos is the millionths of a micro-dollar in what amounts are stated in.
var picos = map[jsonscan.Role]int64{
	tellCost: 1_000_000_000_000, tellUpstream: 1_000_000_000_000, tellTicks: 100,
}

// money reads an amount.
func (r *reader) money(text []byte, role jsonscan.Role) {
	b := &r.bill
	switch n, ok := picoOf(text, picos[role]); {
	case !ok:
	case role == tellUpstream:
		b.upstream = cmp.Or(n, b.upstream)
	default:
		b.cost, b.costed = cmp.Or(n, b.cost), true
	}
}

// endDocument ends a response that is one JSON document, or one document of several. Bytes after it
// break the response, but do not undo what the document said.
func (r *reader) endDocument() {
	switch r.framing {
	case documentFraming:
		r.found.Complete = true
		r.commit(true)
	case lineFraming:
		r.commit(true)
		r.event, r.detail = event{}, detail{}
	}
}
