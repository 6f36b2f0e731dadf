// Package jsonscan checks a JSON document that arrives in pieces and calls a visitor for the values
// at chosen paths, in memory of a fixed size.
package jsonscan

import "unicode/utf8"

const (
	// MaxDepth is the number of levels that objects and arrays may nest.
	MaxDepth = 512
	// MaxLevels is the number of levels whose node a Scanner knows. Deeper levels have its Rest.
	MaxLevels = 16
	// MaxText is the number of bytes of a key or value that a Scanner keeps. It counts the others.
	MaxText = 256
)

// Visitor receives what a Scanner finds at the nodes of its table.
type Visitor interface {
	// Key is called for each key of an object whose node has Watch. The key is s.Text().
	Key(s *Scanner, n *Node)
	// Begin is called when an object or array begins. kind is '{' or '['.
	Begin(s *Scanner, n *Node, kind byte)
	// End is called when that object or array ends.
	End(s *Scanner, n *Node)
	// Scalar is called when any other value ends. kind is '"', '0' for a number, 't', 'f' or 'n'.
	Scalar(s *Scanner, n *Node, kind byte)
}

// Scanner checks one JSON document that arrives in pieces, and calls a visitor for the nodes of a
// table. It accepts what json.Valid accepts, up to MaxDepth. It stops at the first byte that is no
// JSON and ignores the rest of the document. It allocates nothing.
type Scanner struct {
	root    *Node
	visitor Visitor

	state  state
	isKey  bool  // the string is a key
	kind   byte  // of the scalar
	depth  int   // of the innermost object or array, 0 outside
	offset int   // of the byte being read, in its piece
	start  int   // offset of the scalar
	size   int64 // bytes of the decoded string, or of the number
	kept   int   // bytes in buf

	node   *Node                 // of the value that is read or comes next
	nodes  [MaxLevels]*Node      // of the objects and arrays around it, outermost first
	arrays [MaxDepth / 64]uint64 // a bit for each level that is an array

	literal string // the rest of true, false or null
	code    rune   // the digits of a \u escape read so far
	digits  int    // the digits still missing
	high    rune   // the first half of a surrogate pair, just read
	buf     [MaxText]byte
}

// New returns a Scanner of one document.
func New(root *Node, visitor Visitor) Scanner {
	return Scanner{root: root, node: root, visitor: visitor}
}

// Reset prepares the Scanner for a new document.
func (s *Scanner) Reset() {
	s.state, s.depth, s.node = wantValue, 0, s.root
	s.isKey, s.size, s.kept = false, 0, 0
}

// Text returns the beginning of the key, string or number, decoded. Size is its whole length.
func (s *Scanner) Text() []byte { return s.buf[:s.kept] }

// Whole reports whether Text is all of it.
func (s *Scanner) Whole() bool { return s.size == int64(s.kept) }

// Size returns the length of the decoded string or of the number in bytes.
func (s *Scanner) Size() int64 { return s.size }

// Depth returns the depth of the innermost object or array, and 0 outside.
func (s *Scanner) Depth() int { return s.depth }

// Offset returns the offset of the byte being read in its piece.
func (s *Scanner) Offset() int { return s.offset }

// Start returns the offset of the first byte of the scalar, in the piece that held it.
func (s *Scanner) Start() int { return s.start }

// Stop rejects the document. A visitor calls it.
func (s *Scanner) Stop() { s.state = broken }

// Broken reports whether the document is no JSON, or was rejected.
func (s *Scanner) Broken() bool { return s.state == broken }

// Within returns the size so far of an unfinished string value at a node of role r.
func (s *Scanner) Within(r Role) int64 {
	if s.node == nil || s.node.Role != r || s.isKey || s.kind != '"' {
		return 0
	}
	switch s.state {
	case inString, inEscape, inHex:
		return s.size
	}
	return 0
}

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

// Finish ends the document and reports whether it is complete. A number at the top ends only here.
func (s *Scanner) Finish() bool {
	if s.depth == 0 && s.state.endsNumber() {
		s.endScalar()
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
		s.offset = j
		s.endString()
	case '\\':
		s.state = inEscape
	default:
		s.state = broken
	}
	return j + 1
}

// keep copies bytes that a visitor may ask for, as far as they fit.
func (s *Scanner) keep(b []byte) {
	if s.node != nil || s.isKey {
		s.kept += copy(s.buf[s.kept:], b)
	}
}

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
	case s.depth >= MaxLevels || !s.Whole():
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

func (s *Scanner) afterValue() {
	s.state = wantComma
	if s.depth == 0 {
		s.state = ended
	}
}

// open enters an object or array. The current node is its node.
func (s *Scanner) open(kind byte) {
	if s.depth == MaxDepth {
		s.state = broken
		return
	}
	word, bit := s.depth/64, uint64(1)<<(s.depth%64)
	n := s.node
	if s.depth < MaxLevels {
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
	s.depth--
	if s.state != broken {
		s.afterValue()
	}
}

// top returns the node of the innermost object or array.
func (s *Scanner) top() *Node {
	if s.depth <= MaxLevels {
		return s.nodes[s.depth-1]
	}
	if n := s.nodes[MaxLevels-1]; n != nil {
		return n.Rest
	}
	return nil
}

// element returns the node of the elements of the innermost array.
func (s *Scanner) element() *Node {
	n := s.top()
	switch {
	case n == nil:
		return nil
	case s.depth >= MaxLevels:
		return n.Rest
	}
	return n.element()
}

func (s *Scanner) inArray() bool {
	return s.arrays[(s.depth-1)/64]&(1<<((s.depth-1)%64)) != 0
}

// add appends a decoded rune to the string.
func (s *Scanner) add(r rune) {
	var b [utf8.UTFMax]byte
	n := utf8.EncodeRune(b[:], r)
	s.size += int64(n)
	s.keep(b[:n])
}
