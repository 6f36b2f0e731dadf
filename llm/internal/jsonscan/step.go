package jsonscan

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// step reads one byte outside the ordinary bytes of a string. It reports false if the byte ended a
// plain scalar and must be read again.
func (s *Scanner) step(c byte) bool {
	blank := c == ' ' || c == '\n' || c == '\r' || c == '\t'
	switch {
	case s.state == inEscape:
		s.escape(c)
	case s.state == inHex:
		s.hex(c)
	case s.state == inPlain && (blank || c == ',' || c == ']' || c == '}'):
		s.endPlain()
		return false
	case s.state == inPlain:
		s.plain(c)
	case !blank:
		s.structure(c)
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
			s.state, s.node = wantValue, s.top().element()
		}
	default:
		s.state = broken
	}
}

// closes reports whether c ends the innermost object or array here.
func (s *Scanner) closes(c byte) bool {
	return (s.state == wantElement || s.state == wantMember || s.state == wantComma) &&
		c == s.levels[s.Depth()-1].kind+('}'-'{') // as ] is behind [
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
	case 't', 'f', 'n':
		s.state = inPlain
		s.plain(c)
	default:
		s.kind, s.state = '0', broken
		if c == '-' || '0' <= c && c <= '9' {
			s.state = inPlain
		}
		s.plain(c)
	}
}

// plain keeps a byte of a number or a literal.
func (s *Scanner) plain(c byte) {
	s.size++
	if s.kept < MaxText {
		s.buf[s.kept] = c
		s.kept++
	}
}

// endPlain ends a number or a literal, unless it is none. It judges a longer one by its beginning.
func (s *Scanner) endPlain() {
	switch text := s.Text(); {
	case string(text) == "true", string(text) == "false", string(text) == "null", isNumber(text):
		s.endScalar()
	default:
		s.state = broken
	}
}

// isNumber reports whether a text is a number of JSON.
func isNumber(text []byte) bool {
	whole := bytes.TrimPrefix(text, []byte("-"))
	rest := bytes.TrimLeft(whole, digits)
	n := len(whole) - len(rest)
	ok := n == 1 || n > 1 && whole[0] != '0'
	if len(rest) > 0 && rest[0] == '.' {
		fraction := rest[1:]
		rest = bytes.TrimLeft(fraction, digits)
		ok = ok && len(rest) < len(fraction)
	}
	if len(rest) > 0 && (rest[0] == 'e' || rest[0] == 'E') {
		power := rest[1:]
		if len(power) > 0 && (power[0] == '+' || power[0] == '-') {
			power = power[1:]
		}
		rest = bytes.TrimLeft(power, digits)
		ok = ok && len(rest) < len(power)
	}
	return ok && len(rest) == 0
}

const digits = "0123456789"

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
