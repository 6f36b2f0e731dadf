package llm

// An observer is the visitor of its scanner.

func (o *observer) key(*scanner, *node) {}

func (o *observer) begin(_ *scanner, n *node, kind byte) {
	e := &o.event
	switch n.role {
	case tellUsage, tellPart:
		if kind == '{' {
			e.usage, e.part, e.counts = true, n.role == tellPart, counts{}
		}
	case tellChoices:
		e.choices = kind == '['
	case tellChoice:
		e.choice = true
	case tellError:
		e.fault = true
	}
}

func (o *observer) end(s *scanner, _ *node) {
	if s.depth == 1 {
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

func (o *observer) scalar(s *scanner, n *node, kind byte) {
	e := &o.event
	if s.depth == 0 {
		o.endDocument()
	}
	switch n.role {
	case tellText:
		if kind == '"' {
			e.text += s.size
		}
	case tellType:
		if kind == '"' && s.whole() {
			e.kind = kindOf(s.text())
		}
	case tellError:
		e.fault = e.fault || kind != 'n'
	case tellChoice:
		e.choice = true
	case tellFinish:
		e.finish = e.finish || kind == '"'
	case tellSequence:
		if v, ok := tokens(s.text()); ok && kind == '0' {
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
func learn(s *scanner, kind byte, n *int64, has *bool) {
	if v, ok := tokens(s.text()); ok && kind == '0' {
		*n, *has = v, true
	}
}
