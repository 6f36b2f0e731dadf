package accesslog

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
)

// fields are the fields of Caddy, Traefik and of the usual log_format of nginx in JSON, by their
// rank: of two for one text, the later holds. Caddy puts most of its own into request.
var fields = [...]struct {
	name string
	read func(e *Entry, value []byte) bool
}{
	{"time", readTime}, {"timestamp", readTime}, {"@timestamp", readTime}, {"msec", readTime},
	{"time_iso8601", readTime}, {"time_local", readTime}, {"ts", readTime}, {"StartUTC", readTime},
	{"remote_addr", address}, {"ClientAddr", address}, {"remote_ip", address},
	{"ClientHost", address}, {"client_ip", address},
	{"remote_user", text((*Entry).user)}, {"ClientUsername", text((*Entry).user)},
	{"user_id", text((*Entry).user)},
	{"http_host", text((*Entry).host)}, {"host", text((*Entry).host)},
	{"RequestHost", text((*Entry).host)},
	{"request_method", text((*Entry).method)}, {"RequestMethod", text((*Entry).method)},
	{"method", text((*Entry).method)},
	{"path", target}, {"request_uri", target}, {"RequestPath", target}, {"uri", target},
	{"status", code}, {"DownstreamStatus", code},
	{"request", nil}, // read apart
}

// rankOf is the index of each of fields by its name.
var rankOf = func() map[string]int {
	ranks := make(map[string]int)
	for i, f := range fields {
		ranks[f.name] = i
	}
	return ranks
}()

// parseJSON parses a line that is an object of JSON.
func parseJSON(line []byte, e *Entry) error {
	var all [len(fields)][]byte
	values := all[:]
	if !members(line, values) {
		return errLine
	}
	if r := values[rankOf["request"]]; len(r) > 0 && r[0] == '{' {
		if !members(r, values) {
			return errLine
		}
	} else if len(r) > 0 {
		if line, ok := unquote(r); ok { // nginx's $request
			e.Method, e.Path = request(line)
		}
	}
	for i, value := range values {
		if value != nil && fields[i].read != nil && !fields[i].read(e, value) {
			return errLine
		}
	}
	if e.Time <= 0 {
		return errLine
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

// unquote returns the text of a string.
func unquote(value []byte) ([]byte, bool) {
	if len(value) < 2 || value[0] != '"' {
		return nil, false
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

// text returns a func that reads a string into a field. An empty string says nothing.
func text(field func(*Entry) *[]byte) func(*Entry, []byte) bool {
	return func(e *Entry, value []byte) bool {
		if inside, ok := unquote(value); ok && len(known(inside)) > 0 {
			*field(e) = inside
		}
		return true
	}
}

func (e *Entry) user() *[]byte   { return &e.User }
func (e *Entry) host() *[]byte   { return &e.Host }
func (e *Entry) method() *[]byte { return &e.Method }
func (e *Entry) client() *[]byte { return &e.Client }

// address reads an address, without its port.
func address(e *Entry, value []byte) bool {
	inside, ok := unquote(value)
	if !ok || len(known(inside)) == 0 {
		return true
	}
	switch colons := bytes.Count(inside, []byte{':'}); {
	case inside[0] == '[':
		inside, _, _ = bytes.Cut(inside[1:], []byte{']'})
	case colons == 1:
		inside = withoutPort(inside)
	}
	*e.client() = inside
	return true
}

func target(e *Entry, value []byte) bool {
	if inside, ok := unquote(value); ok {
		e.Path = pathOf(inside)
	}
	return true
}

func code(e *Entry, value []byte) bool {
	e.Status = int(max(0, number(bytes.Trim(value, `"`))))
	return true
}

// layouts are those of times that are no numbers.
var layouts = []string{
	time.RFC3339Nano, "02/Jan/2006:15:04:05 -0700", "2006-01-02T15:04:05.999999999-0700",
	"2006/01/02 15:04:05.999999999",
}

// readTime reads a time: a layout, or the seconds, milliseconds or nanoseconds since 1970.
func readTime(e *Entry, value []byte) bool {
	inside, isText := unquote(value)
	if !isText {
		inside = value
	}
	if n, err := strconv.ParseFloat(string(inside), 64); err == nil {
		e.Time = micros(inside, n)
		return e.Time > 0
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, string(inside)); err == nil {
			e.Time = t.UnixMicro()
			return e.Time > 0
		}
	}
	return false
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
	whole, fraction, _ := bytes.Cut(digits, []byte{'.'})
	seconds, err := strconv.ParseInt(string(whole), 10, 64)
	if err != nil || len(fraction) > 0 && number(fraction[:1]) < 0 {
		return int64(n * 1e6)
	}
	us := int64(0)
	for i := range 6 {
		us *= 10
		if i < len(fraction) && number(fraction[i:i+1]) > 0 {
			us += number(fraction[i : i+1])
		}
	}
	return seconds*1e6 + us
}
