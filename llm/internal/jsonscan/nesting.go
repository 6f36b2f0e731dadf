package jsonscan

// endString ends a key or a string value.
func (s *Scanner) endString() {
	if !s.isKey {
		s.endScalar()
		return
	}
	s.state = wantColon
	n := s.top()
	if n != nil && n.Watch {
		s.visitor.Key(s, n)
		if s.state == broken {
			return
		}
	}
	switch {
	case n == nil:
		s.node = nil
	case !s.Whole():
		s.node = n.Rest
	default:
		s.node = n.at(s.Text())
	}
}

// endScalar reports a scalar to the visitor and expects what follows a value.
func (s *Scanner) endScalar() {
	s.afterValue()
	if s.node != nil {
		s.visitor.Scalar(s, s.node, s.kind)
	}
}

// afterValue expects what may follow a value at this depth.
func (s *Scanner) afterValue() {
	s.state = wantComma
	if s.Depth() == 0 {
		s.state = ended
	}
}

// open enters an object or array. The current node is its node.
func (s *Scanner) open(kind byte) {
	if s.Depth() == MaxDepth {
		s.state = broken
		return
	}
	n := s.node
	s.levels = append(s.levels, level{n, kind})
	s.state = wantMember
	if kind == '[' {
		s.state = wantElement
		s.node = n.element()
	}
	if n != nil {
		s.visitor.Begin(s, n, kind)
	}
}

// close leaves the innermost object or array.
func (s *Scanner) close() {
	n := s.top()
	s.node = n
	if n != nil {
		s.visitor.End(s, n)
	}
	s.levels = s.levels[:s.Depth()-1]
	if s.state != broken {
		s.afterValue()
	}
}

// top returns the node of the innermost object or array.
func (s *Scanner) top() *Node { return s.levels[s.Depth()-1].node }

func (s *Scanner) inArray() bool { return s.levels[s.Depth()-1].kind == '[' }
