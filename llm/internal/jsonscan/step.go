package jsonscan

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// step reads one byte outside the ordinary bytes of a string. It reports false if the byte ended a
// number and must be read again.
func (s *Scanner) step(c byte) bool {
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
func (s *Scanner) structure(c byte) {
	if s.state == ended && s.many {
		s.Reset()
	}
	switch {
	case s.closes(c):
		s.close()
	case s.state == wantValue, s.state == wantElement:
		s.value(c)
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

// closes reports whether c ends the innermost object or array here.
func (s *Scanner) closes(c byte) bool {
	return (s.state == wantElement || s.state == wantMember || s.state == wantComma) &&
		c == s.kinds[s.depth-1]+('}'-'{') // as ] is behind [
}

// value reads the first byte of a value.
func (s *Scanner) value(c byte) {
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

func (s *Scanner) escape(c byte) {
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

func (s *Scanner) hex(c byte) {
	value := strings.IndexByte("0123456789abcdefABCDEF", c)
	switch {
	case value < 0:
		s.state = broken
		return
	case value > 15:
		value -= 6
	}
	s.code = s.code<<4 | rune(value)
	if s.digits--; s.digits > 0 {
		return
	}
	s.state = inString
	r := utf16.DecodeRune(s.high, s.code)
	if r == utf8.RuneError {
		// A half of a pair counts as U+FFFD until its other half follows.
		s.high = 0
		if 0xD800 <= s.code && s.code < 0xDC00 {
			s.high = s.code
		}
		s.add(s.code)
		return
	}
	s.high = 0
	if s.Whole() {
		s.kept -= 3
	}
	s.size -= 3
	s.add(r)
}

// number reads a byte of a number. It reports false if c ended the number.
func (s *Scanner) number(c byte) bool {
	next := numberStates[s.state-inMinus][numberClass[c]]
	switch {
	case next != 0:
		s.state = next
	case s.state.endsNumber():
		s.endScalar()
		return false
	default:
		s.state = broken
	}
	s.digit(c)
	return true
}

// numberStates is the state after a byte of a number, by the state before and the class of the
// byte. Without an entry, no number goes on so.
var numberStates = [...][numberClasses]state{
	0:                    {zero: inZero, digit: inInteger},
	inZero - inMinus:     {point: inPoint, exponent: inExponent},
	inInteger - inMinus:  {zero: inInteger, digit: inInteger, point: inPoint, exponent: inExponent},
	inPoint - inMinus:    {zero: inFraction, digit: inFraction},
	inFraction - inMinus: {zero: inFraction, digit: inFraction, exponent: inExponent},
	inExponent - inMinus: {zero: inPower, digit: inPower, sign: inSign},
	inSign - inMinus:     {zero: inPower, digit: inPower},
	inPower - inMinus:    {zero: inPower, digit: inPower},
}

// Classes of the bytes of a number.
const (
	other = iota
	zero
	digit
	point
	exponent
	sign
	numberClasses
)

var numberClass = [256]uint8{
	'0': zero, '1': digit, '2': digit, '3': digit, '4': digit, '5': digit, '6': digit, '7': digit,
	'8': digit, '9': digit, '.': point, 'e': exponent, 'E': exponent, '+': sign, '-': sign,
}

// digit keeps a byte of a number.
func (s *Scanner) digit(c byte) {
	s.size++
	if s.kept < MaxText {
		s.buf[s.kept] = c
		s.kept++
	}
}
