package llm

import "github.com/headgate/headgate/adapters/llm/internal/jsonscan"

// An observer is the visitor of its scanner.

func (o *observer) Key(*jsonscan.Scanner, *node) {}

func (o *observer) Begin(_ *jsonscan.Scanner, n *node, kind byte) {
	e := &o.event
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

func (o *observer) End(s *jsonscan.Scanner, _ *node) {
	if s.Depth() == 1 {
		o.endDocument()
	}
}

// endDocument ends a response that is one JSON document. Bytes behind it break it, but do not undo
// what it said.
func (o *observer) endDocument() {
	if !o.stream {
		o.found.Complete = true
		o.commit(true)
	}
}

func (o *observer) Scalar(s *jsonscan.Scanner, n *node, kind byte) {
	e := &o.event
	if s.Depth() == 0 {
		o.endDocument()
	}
	switch n.Role {
	case tellText:
		if kind == '"' {
			e.text += s.Size()
		}
	case tellType:
		if kind == '"' && s.Whole() {
			e.kind = kindOf(s.Text())
		}
	case tellError:
		e.fault = e.fault || kind != 'n'
	case tellChoice:
		e.choice = true
	case tellFinish:
		e.finish = e.finish || kind == '"'
	case tellSequence:
		if v, ok := tokens(s.Text()); ok && kind == '0' {
			o.next = v + 1
		}
	case tellInput:
		learn(s, kind, &e.counts.input, &e.counts.hasInput)
	case tellRead:
		learn(s, kind, &e.counts.read, &e.counts.hasRead)
	case tellWrite:
		learn(s, kind, &e.counts.write, &e.counts.hasWrite)
	case tellOutput:
		learn(s, kind, &e.counts.output, &e.counts.hasOutput)
	}
}

// learn takes over a number of tokens if it is one.
func learn(s *jsonscan.Scanner, kind byte, n *int64, has *bool) {
	if v, ok := tokens(s.Text()); ok && kind == '0' {
		*n, *has = v, true
	}
}
