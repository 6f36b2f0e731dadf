package accesslog

import (
	"bytes"
	"maps"
	"math"
	"strconv"
	"time"

	"github.com/tidwall/gjson"
)

// fields are the fields of Caddy, Traefik and of the usual log_format of nginx in JSON. Of two for one
// text, the later holds. Caddy puts most of its own into request, which for nginx is the request line.
var fields = []struct {
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

// parseJSON parses a line that is an object of JSON.
func parseJSON(line []byte, e *Entry) error {
	if !gjson.ValidBytes(line) {
		return errLine
	}
	values := gjson.ParseBytes(line).Map()
	if inner := values["request"]; inner.IsObject() {
		delete(values, "request")
		maps.Copy(values, inner.Map())
	}
	for _, f := range fields {
		if value := known([]byte(values[f.name].String())); len(value) > 0 {
			f.read(e, value)
		}
	}
	return nil
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
		e.Time = micros(n)
		return
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, string(value)); err == nil {
			e.Time = t.UnixMicro()
			return
		}
	}
}

// micros returns the microseconds of a number of seconds, milliseconds or nanoseconds.
func micros(n float64) int64 {
	switch {
	case n > 1e17:
		n /= 1e9
	case n > 1e11:
		n /= 1e3
	}
	seconds, rest := math.Modf(n) // the product of both would round the rest
	return int64(seconds)*1e6 + int64(math.Round(rest*1e6))
}
