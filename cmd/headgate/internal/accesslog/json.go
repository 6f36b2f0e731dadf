package accesslog

import (
	"cmp"
	"maps"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// Names of the fields of Caddy, of Traefik and of the usual log_format of nginx in JSON. The first that
// a line has holds.
var (
	times = []string{
		"StartUTC", "ts", "time_local", "time_iso8601", "msec", "@timestamp", "timestamp", "time",
	}
	clients = []string{"client_ip", "ClientHost", "remote_ip", "ClientAddr", "remote_addr"}
	users   = []string{"user_id", "ClientUsername", "remote_user"}
	hosts   = []string{"RequestHost", "host", "http_host"}
	methods = []string{"method", "RequestMethod", "request_method"}
	targets = []string{"uri", "RequestPath", "request_uri", "path"}
)

// parseJSON parses a line that is an object of JSON. Caddy puts most fields into request, which for
// nginx is the request line.
func parseJSON(line string, r *Request) error {
	if !gjson.Valid(line) {
		return errLine
	}
	fields := gjson.Parse(line).Map()
	if inner := fields["request"]; inner.IsObject() {
		maps.Copy(fields, inner.Map())
	}
	first := func(names []string) (text string) {
		for _, name := range names {
			text = cmp.Or(text, known(fields[name].String()))
		}
		return text
	}
	method, path := request(fields["request"].String())
	r.Time = readTime(first(times))
	r.Client, r.User, r.Host = withoutPort(first(clients)), first(users), first(hosts)
	r.Method, r.Path = cmp.Or(first(methods), method), cmp.Or(pathOf(first(targets)), path)
	return nil
}

// withoutPort returns an address without its port and its brackets.
func withoutPort(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

// layouts are those of times that are no numbers.
var layouts = []string{
	time.RFC3339Nano, commonTime, "2006-01-02T15:04:05.999999999-0700", "2006/01/02 15:04:05.999999999",
}

// readTime returns the microseconds of a time: of a layout, or of a number of seconds, milliseconds or
// nanoseconds since 1970. It is 0 for any other.
func readTime(text string) int64 {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return micros(n)
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UnixMicro()
		}
	}
	return 0
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
