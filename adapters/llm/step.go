package llm

import (
	"unicode/utf16"
	"unicode/utf8"
)

// state is what a scanner expects or reads.
type state uint8

const (
	wantValue   state = iota
	wantElement       // after [
	wantMember        // after {
	wantKey           // after a comma in an object
	wantColon
	wantComma // after a value in an object or array
	ended     // after the document
	inString
	inEscape
	inHex
	inLiteral
	inMinus
	inZero
	inInteger
	inPoint
	inFraction
	inExponent
	inSign
	inPower
	broken
)

// step reads one byte outside the ordinary bytes of a string. It reports false if the byte ended a
// number and must be read again.
func (s *scanner) step(c byte) bool {
	if s.state <= ended {
		if c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			s.structure(c)
		}
		return true
	}
	switch s.state {
	case inEscape:
		s.escape(c)
	case inHex:
		s.hex(c)
	case inLiteral:
		if c != s.literal[0] {
			s.state = broken
		} else if s.literal = s.literal[1:]; s.literal == "" {
			s.endScalar()
		}
	default:
		return s.number(c)
	}
	return true
}

// structure reads a byte between values.
func (s *scanner) structure(c byte) {
	switch {
	case s.state == wantValue, s.state == wantElement && c != ']':
		s.value(c)
	case s.state == wantElement, s.state == wantMember && c == '}',
		s.state == wantComma && c == ']' && s.inArray(),
		s.state == wantComma && c == '}' && !s.inArray():
		s.close()
	case c == '"' && (s.state == wantMember || s.state == wantKey):
		s.isKey, s.state = true, inString
		s.size, s.kept, s.high = 0, 0, 0
	case s.state == wantColon && c == ':':
		s.state = wantValue
	case s.state == wantComma && c == ',':
		if s.state = wantKey; s.inArray() {
			s.state, s.node = wantValue, s.element()
		}
	default:
		s.state = broken
	}
}

// value reads the first byte of a value.
func (s *scanner) value(c byte) {
	s.isKey, s.start, s.kind = false, s.offset, c
	s.size, s.kept, s.high = 0, 0, 0
	switch c {
	case '{', '[':
		s.open(c)
	case '"':
		s.state = inString
	case 't':
		s.state, s.literal = inLiteral, "rue"
	case 'f':
		s.state, s.literal = inLiteral, "alse"
	case 'n':
		s.state, s.literal = inLiteral, "ull"
	default:
		s.kind = '0'
		switch {
		case c == '-':
			s.state = inMinus
		case c == '0':
			s.state = inZero
		case '1' <= c && c <= '9':
			s.state = inInteger
		default:
			s.state = broken
			return
		}
		s.digit(c)
	}
}

func (s *scanner) escape(c byte) {
	s.state = inString
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.high = 0
		s.add(rune(unescaped[c]))
	case 'u':
		s.state, s.code, s.digits = inHex, 0, 4
	default:
		s.state = broken
	}
}

var unescaped = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

func (s *scanner) hex(c byte) {
	switch {
	case '0' <= c && c <= '9':
		c -= '0'
	case 'a' <= c && c <= 'f':
		c -= 'a' - 10
	case 'A' <= c && c <= 'F':
		c -= 'A' - 10
	default:
		s.state = broken
		return
	}
	s.code = s.code<<4 | rune(c)
	if s.digits--; s.digits > 0 {
		return
	}
	s.state = inString
	r := utf16.DecodeRune(s.high, s.code)
	if r == utf8.RuneError {
		// A half of a pair stands for U+FFFD until its other half follows.
		s.high = 0
		if 0xD800 <= s.code && s.code < 0xDC00 {
			s.high = s.code
		}
		s.add(s.code)
		return
	}
	s.high = 0
	if s.whole() {
		s.kept -= 3
	}
	s.size -= 3
	s.add(r)
}

// number reads a byte of a number, or the one behind it.
func (s *scanner) number(c byte) bool {
	next := broken
	isDigit := '0' <= c && c <= '9'
	switch s.state {
	case inMinus:
		if c == '0' {
			next = inZero
		} else if isDigit {
			next = inInteger
		}
	case inZero, inInteger, inFraction, inPower:
		switch {
		case isDigit && s.state != inZero:
			next = s.state
		case c == '.' && (s.state == inZero || s.state == inInteger):
			next = inPoint
		case (c == 'e' || c == 'E') && s.state != inPower:
			next = inExponent
		default:
			s.endScalar()
			return false
		}
	case inPoint:
		if isDigit {
			next = inFraction
		}
	case inExponent:
		if c == '+' || c == '-' {
			next = inSign
		} else if isDigit {
			next = inPower
		}
	case inSign:
		if isDigit {
			next = inPower
		}
	}
	s.state = next
	s.digit(c)
	return true
}

func (s *scanner) digit(c byte) {
	s.size++
	if s.kept < maxText {
		s.buf[s.kept] = c
		s.kept++
	}
}
