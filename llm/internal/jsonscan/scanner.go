// Package jsonscan checks a JSON document that arrives in pieces and calls a visitor for the values
// at chosen paths, in memory of a fixed size.
package jsonscan

import "unicode/utf8"

const (
	// MaxDepth is the number of levels that objects and arrays may nest.
	MaxDepth = 512
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
// table. It accepts what json.Valid accepts, up to MaxDepth and numbers of MaxText bytes. It stops
// where the document is no JSON and ignores the rest.
type Scanner struct {
	root    *Node
	visitor Visitor
	pieces  func(n *Node, p []byte)
	many    bool

	state  state
	isKey  bool  // the string is a key
	kind   byte  // of the scalar
	offset int   // of the byte being read, in its piece
	start  int   // offset of the scalar
	size   int64 // bytes of the decoded string, or of the plain scalar
	kept   int   // bytes in buf

	node   *Node   // of the value that is read or comes next
	levels []level // the objects and arrays around it, outermost first

	code   rune              // the digits of a \u escape read so far
	digits int               // the digits still missing
	high   rune              // the first half of a surrogate pair, just read
	rune   [utf8.UTFMax]byte // just decoded
	buf    [MaxText]byte
}

// level is an object or array that has begun.
type level struct {
	node *Node
	kind byte // '{' or '['
}

// usualDepth is the number of levels of almost all documents.
const usualDepth = 16

// New returns a Scanner of one document.
func New(root *Node, visitor Visitor) Scanner {
	return Scanner{root: root, node: root, visitor: visitor, levels: make([]level, 0, usualDepth)}
}

// Pieces has f called for the pieces of each decoded string at a node, whole or not. f must not
// keep them.
func (s *Scanner) Pieces(f func(n *Node, p []byte)) { s.pieces = f }

// Many has the Scanner read one document after another.
func (s *Scanner) Many() { s.many = true }

// Idle reports whether no document has begun, or the last one has ended.
func (s *Scanner) Idle() bool { return s.state == ended || s.state == wantValue && len(s.levels) == 0 }

// Reset prepares the Scanner for a new document.
func (s *Scanner) Reset() {
	s.state, s.levels, s.node = wantValue, s.levels[:0], s.root
	s.isKey, s.size, s.kept = false, 0, 0
}

// Text returns the beginning of the key, string or number, decoded. Size is its whole length.
func (s *Scanner) Text() []byte { return s.buf[:s.kept] }

// Whole reports whether Text is all of it.
func (s *Scanner) Whole() bool { return s.size == int64(s.kept) }

// Size returns the length of the decoded string or of the number in bytes.
func (s *Scanner) Size() int64 { return s.size }

// Depth returns the depth of the innermost object or array, and 0 outside.
func (s *Scanner) Depth() int { return len(s.levels) }

// Offset returns an offset in the piece: that of the bracket for Begin and End, and that behind the
// value for Scalar.
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

// keep copies bytes that a visitor may ask for, as far as they fit.
func (s *Scanner) keep(b []byte) {
	if s.node == nil && !s.isKey {
		return
	}
	s.kept += copy(s.buf[s.kept:], b)
	if s.pieces != nil && !s.isKey {
		s.pieces(s.node, b)
	}
}

// add appends a decoded rune to the string.
func (s *Scanner) add(r rune) {
	n := utf8.EncodeRune(s.rune[:], r)
	s.size += int64(n)
	s.keep(s.rune[:n])
}
