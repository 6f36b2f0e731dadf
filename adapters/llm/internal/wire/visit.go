package wire

import "github.com/headgate/headgate/adapters/llm/internal/jsonscan"

// Key implements jsonscan.Visitor. No node of a response asks for keys.
func (r *reader) Key(*jsonscan.Scanner, *node) {}

// Begin implements jsonscan.Visitor.
func (r *reader) Begin(_ *jsonscan.Scanner, n *node, kind byte) {
	e := &r.event
	switch n.Role {
	case tellUsage, tellPart:
		if kind == '{' {
			e.usage, e.part, e.counts = true, n.Role == tellPart, counts{}
		}
	case tellChoices:
		e.choices = kind == '['
	case tellChoice:
		e.choice = true
	case tellError:
		e.fault = true
	}
}

// End implements jsonscan.Visitor.
func (r *reader) End(s *jsonscan.Scanner, _ *node) {
	if s.Depth() == 1 {
		r.endDocument()
	}
}

// Scalar implements jsonscan.Visitor.
func (r *reader) Scalar(s *jsonscan.Scanner, n *node, kind byte) {
	if s.Depth() == 0 {
		r.endDocument()
	}
	switch kind {
	case '"':
		r.text(s, n.Role)
	case '0':
		r.number(s, n.Role)
	}
	switch n.Role {
	case tellError:
		r.event.fault = r.event.fault || kind != 'n'
	case tellChoice:
		r.event.choice = true
	}
}

// endDocument ends a response that is one JSON document. Bytes after it break the response, but do
// not undo what the document said.
func (r *reader) endDocument() {
	if !r.stream {
		r.found.Complete = true
		r.commit(true)
	}
}

func (r *reader) text(s *jsonscan.Scanner, role jsonscan.Role) {
	e := &r.event
	switch role {
	case tellText:
		e.text += s.Size()
	case tellType:
		if s.Whole() {
			e.kind = kindOf(s.Text())
		}
	case tellFinish:
		e.finish = true
	}
}

func (r *reader) number(s *jsonscan.Scanner, role jsonscan.Role) {
	if role < tellInput || role > tellSequence {
		return
	}
	tokens, ok := tokensOf(s.Text())
	switch {
	case !ok:
	case role == tellSequence:
		r.next = tokens + 1
	default:
		r.event.counts.set(count(role-tellInput), tokens)
	}
}
