package jsonscan

// Scan reads the next piece of the document.
func (s *Scanner) Scan(p []byte) {
	for i := 0; i < len(p); {
		switch s.state {
		case broken:
			return
		case inString:
			i = s.readString(p, i)
		default:
			s.offset = i
			if s.step(p[i]) {
				i++
			}
		}
	}
	s.offset = len(p)
}

// Finish ends the document and reports whether it is complete. A plain scalar at the top ends only here.
func (s *Scanner) Finish() bool {
	if s.Depth() == 0 && s.state == inPlain {
		s.endPlain()
	}
	return s.state == ended
}

// ordinary marks the bytes that stand for themselves in a string.
var ordinary = func() (t [256]bool) {
	for c := 0x20; c < len(t); c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// readString reads p from i to the end of the string, an escape or the end of p.
func (s *Scanner) readString(p []byte, i int) int {
	j := i
	for j < len(p) && ordinary[p[j]] {
		j++
	}
	if j > i {
		s.high = 0
		s.size += int64(j - i)
		s.keep(p[i:j])
	}
	if j == len(p) {
		return j
	}
	switch p[j] {
	case '"':
		s.offset = j + 1
		s.endString()
	case '\\':
		s.state = inEscape
	default:
		s.state = broken
	}
	return j + 1
}
