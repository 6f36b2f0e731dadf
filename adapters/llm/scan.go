package llm

import "unicode/utf8"

const (
	// maxDepth is how deep objects and arrays may nest.
	maxDepth = 512
	// maxKeys is for how many levels a scanner knows the node. Deeper levels have the rest of it.
	maxKeys = 16
	// maxText is how many bytes of a key or value a scanner keeps. It counts the others.
	maxText = 256
)

// scanner checks one JSON document that arrives in pieces, and tells a visitor what stands at the
// nodes of a table. Its memory is the struct alone: it counts long strings and keeps none. It
// accepts what json.Valid accepts, up to maxDepth. The first byte that is no JSON breaks it, and
// it ignores the rest of the document.
type scanner struct {
	visit visitor
	root  *node

	state  state
	isKey  bool  // the string is a key
	kind   byte  // of the scalar
	depth  int   // of the innermost object or array, 0 outside
	offset int   // of the byte being read, in its piece
	start  int   // offset of the scalar
	size   int64 // bytes of the decoded string, or of the number
	kept   int   // how many of them are in buf

	node   *node                 // of the value that is read or comes next
	nodes  [maxKeys]*node        // of the objects and arrays around it, outermost first
	arrays [maxDepth / 64]uint64 // a bit for each level that is an array

	literal string // the rest of true, false or null
	code    rune   // of a \u escape, as far as it is read
	digits  int    // how many of its digits are missing
	high    rune   // the first half of a surrogate pair, just read
	buf     [maxText]byte
}

// reset prepares the scanner for a new document.
func (s *scanner) reset() {
	s.state, s.depth, s.node = wantValue, 0, s.root
	s.isKey, s.size, s.kept = false, 0, 0
}

// text returns the beginning of the key, string or number, decoded. s.size is its whole length.
func (s *scanner) text() []byte { return s.buf[:s.kept] }

// whole reports whether text is all of it.
func (s *scanner) whole() bool { return s.size == int64(s.kept) }

// within returns the size so far of an unfinished string value at a node of role r.
func (s *scanner) within(r role) int64 {
	if s.node == nil || s.node.role != r || s.isKey || s.kind != '"' {
		return 0
	}
	switch s.state {
	case inString, inEscape, inHex:
		return s.size
	}
	return 0
}

// scan reads the next piece of the document.
func (s *scanner) scan(p []byte) {
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

// finish ends the document and reports whether it is complete. A number at the top ends only here.
func (s *scanner) finish() bool {
	if s.depth == 0 {
		switch s.state {
		case inZero, inInteger, inFraction, inPower:
			s.endScalar()
		}
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
func (s *scanner) readString(p []byte, i int) int {
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
		s.offset = j
		s.endString()
	case '\\':
		s.state = inEscape
	default:
		s.state = broken
	}
	return j + 1
}

// keep copies what somebody may ask for, as far as it fits.
func (s *scanner) keep(b []byte) {
	if s.node != nil || s.isKey {
		s.kept += copy(s.buf[s.kept:], b)
	}
}

func (s *scanner) endString() {
	if !s.isKey {
		s.endScalar()
		return
	}
	s.state = wantColon
	n := s.top()
	if n != nil && n.watch {
		s.visit.key(s, n)
		if s.state == broken {
			return
		}
	}
	switch {
	case n == nil:
		s.node = nil
	case s.depth >= maxKeys || !s.whole():
		s.node = n.rest
	default:
		s.node = n.at(s.text())
	}
}

// endScalar tells the visitor about a scalar and expects what follows a value.
func (s *scanner) endScalar() {
	s.afterValue()
	if s.node != nil {
		s.visit.scalar(s, s.node, s.kind)
	}
}

func (s *scanner) afterValue() {
	s.state = wantComma
	if s.depth == 0 {
		s.state = ended
	}
}

// open enters an object or array. Its node is the current one.
func (s *scanner) open(kind byte) {
	if s.depth == maxDepth {
		s.state = broken
		return
	}
	word, bit := s.depth/64, uint64(1)<<(s.depth%64)
	n := s.node
	if s.depth < maxKeys {
		s.nodes[s.depth] = n
	}
	s.depth++
	if kind == '[' {
		s.arrays[word] |= bit
		s.state = wantElement
		s.node = s.element()
	} else {
		s.arrays[word] &^= bit
		s.state = wantMember
	}
	if n != nil {
		s.visit.begin(s, n, kind)
	}
}

// close leaves the innermost object or array.
func (s *scanner) close() {
	n := s.top()
	s.node = n
	if n != nil {
		s.visit.end(s, n)
	}
	s.depth--
	if s.state != broken {
		s.afterValue()
	}
}

// top returns the node of the innermost object or array.
func (s *scanner) top() *node {
	if s.depth <= maxKeys {
		return s.nodes[s.depth-1]
	}
	if n := s.nodes[maxKeys-1]; n != nil {
		return n.rest
	}
	return nil
}

// element returns the node of the elements of the innermost array.
func (s *scanner) element() *node {
	n := s.top()
	switch {
	case n == nil:
		return nil
	case s.depth >= maxKeys:
		return n.rest
	}
	return n.element()
}

func (s *scanner) inArray() bool {
	return s.arrays[(s.depth-1)/64]&(1<<((s.depth-1)%64)) != 0
}

// add appends a decoded rune to the string.
func (s *scanner) add(r rune) {
	var b [utf8.UTFMax]byte
	n := utf8.EncodeRune(b[:], r)
	s.size += int64(n)
	s.keep(b[:n])
}
