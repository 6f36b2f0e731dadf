package accesslog

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
)

// fields are the fields of Caddy, Traefik and of the usual log_format of nginx in JSON, by their
// rank: of two for one text, the later holds. Caddy puts most of its own into request, which for nginx is
// the request line.
var fields = [...]struct {
	name string
	read func(e *Entry, value []byte)
}{
	{"time", readTime}, {"timestamp", readTime}, {"@timestamp", readTime}, {"msec", readTime},
	{"time_iso8601", readTime}, {"time_local", readTime}, {"ts", readTime}, {"StartUTC", readTime},
	{"remote_addr", address}, {"ClientAddr", address}, {"remote_ip", address},
	{"ClientHost", address}, {"client_ip", address},
	{"remote_user", user}, {"ClientUsername", user}, {"user_id", user},
	{"http_host", host}, {"host", host}, {"RequestHost", host},
	{"request", func(e *Entry, line []byte) { e.Method, e.Path = request(line) }},
	{"request_method", method}, {"RequestMethod", method}, {"method", method},
	{"path", target}, {"request_uri", target}, {"RequestPath", target}, {"uri", target},
}

// rankOf is the index of each of fields by its name.
var rankOf = func() map[string]int {
	ranks := make(map[string]int)
	for i, f := range fields {
		ranks[f.name] = i
	}
	return ranks
}()

// parseJSON parses a line that is an object of JSON. encoding/json takes many times as long.
func parseJSON(line []byte, e *Entry) error {
	var values [len(fields)][]byte
	if !members(line, values[:]) {
		return errLine
	}
	if r := &values[rankOf["request"]]; len(*r) > 0 && (*r)[0] == '{' {
		inner := *r
		if *r = nil; !members(inner, values[:]) {
			return errLine
		}
	}
	for i, value := range values {
		if value, ok := unquote(value); ok && len(known(value)) > 0 {
			fields[i].read(e, value)
		}
	}
	return nil
}

// members notes the values of the known members of an object, as they are written.
func members(text []byte, values [][]byte) bool {
	s := scanner{text: text}
	if !s.next('{') {
		return false
	}
	if s.next('}') {
		return s.done()
	}
	for {
		name, ok := s.value()
		if !ok || len(name) < 2 || name[0] != '"' || !s.next(':') {
			return false
		}
		value, ok := s.value()
		if !ok {
			return false
		}
		if rank, ok := rankOf[string(name[1:len(name)-1])]; ok {
			values[rank] = value
		}
		if !s.next(',') {
			return s.next('}') && s.done()
		}
	}
}

// scanner finds the ends of values. What is inside a value that nobody reads is not checked.
type scanner struct {
	text []byte
	at   int
}

// next skips blanks and one byte, and reports whether that byte is there.
func (s *scanner) next(c byte) bool {
	for s.at < len(s.text) && s.text[s.at] <= ' ' {
		s.at++
	}
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// done reports whether only blanks are left.
func (s *scanner) done() bool { return !s.next(0) && s.at == len(s.text) }

// value skips a value, and returns it as it is written.
func (s *scanner) value() (value []byte, ok bool) {
	s.next(0) // blanks
	from, depth := s.at, 0
	for s.at < len(s.text) {
		switch c := s.text[s.at]; c {
		case '"':
			_, after, ok := quoted(s.text[s.at:])
			if !ok {
				return nil, false
			}
			s.at = len(s.text) - len(after) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return s.text[from:s.at], s.at > from
			}
		case ',', ':':
			if depth == 0 {
				return s.text[from:s.at], s.at > from
			}
		}
		if s.at++; depth == 0 && ends(s.text[s.at-1]) {
			return s.text[from:s.at], true
		}
	}
	return nil, false
}

// ends reports whether a byte ends a value that is no number and no word.
func ends(c byte) bool { return c == '"' || c == '}' || c == ']' }

// unquote returns the text of a string. Other values are returned as they are written.
func unquote(value []byte) ([]byte, bool) {
	if len(value) < 2 || value[0] != '"' {
		return value, true
	}
	inside := value[1 : len(value)-1]
	if bytes.IndexByte(inside, '\\') < 0 {
		return inside, true
	}
	var text string
	if json.Unmarshal(value, &text) != nil {
		return nil, false
	}
	return []byte(text), true
}

func user(e *Entry, value []byte)   { e.User = value }
func host(e *Entry, value []byte)   { e.Host = value }
func method(e *Entry, value []byte) { e.Method = value }
func target(e *Entry, value []byte) { e.Path = pathOf(value) }

// address reads an address, without its port.
func address(e *Entry, value []byte) {
	switch colons := bytes.Count(value, []byte{':'}); {
	case value[0] == '[':
		value, _, _ = bytes.Cut(value[1:], []byte{']'})
	case colons == 1:
		value = withoutPort(value)
	}
	e.Client = value
}

// layouts are those of times that are no numbers.
var layouts = []string{
	time.RFC3339Nano, "02/Jan/2006:15:04:05 -0700", "2006-01-02T15:04:05.999999999-0700",
	"2006/01/02 15:04:05.999999999",
}

// readTime reads a time: a layout, or the seconds, milliseconds or nanoseconds since 1970. One of no
// known form leaves no time.
func readTime(e *Entry, value []byte) {
	e.Time = 0
	if n, err := strconv.ParseFloat(string(value), 64); err == nil {
		e.Time = micros(value, n)
		return
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, string(value)); err == nil {
			e.Time = t.UnixMicro()
			return
		}
	}
}

// micros returns the microseconds of a number, which is about n. A float64 would round the decimals
// of seconds.
func micros(digits []byte, n float64) int64 {
	switch {
	case n > 1e17:
		return int64(n / 1e3)
	case n > 1e14:
		return int64(n)
	case n > 1e11:
		return int64(n * 1e3)
	}
	seconds, err := time.ParseDuration(string(digits) + "s")
	if err != nil {
		return int64(n * 1e6)
	}
	return seconds.Microseconds()
}
