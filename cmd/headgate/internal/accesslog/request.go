// Package accesslog reads the access logs of web servers: the Common and the Combined Log Format of
// Apache and nginx, also behind the name of a virtual host, Traefik's extension of it, and the
// lines of JSON of Caddy, Traefik and others. A log may be compressed by gzip.
package accesslog

import (
	"errors"
	"strings"
)

// Request is one request. Its texts are empty if the line does not tell them.
type Request struct {
	Time   int64 // microseconds since 1970
	Client string
	User   string
	Host   string
	Method string
	Path   string // without the query
	Line   int64  // from 1
}

// errLine is the error of a line that is no request of a known format.
var errLine = errors.New("accesslog: no line of a known format")

// maxTime bounds the time of a request: the first microsecond of the year 2200. Limits count in
// numbers below 2^53, and a replay in durations, which end in the year 2262.
const maxTime = 7_258_118_400_000_000

// parse fills in the request of a line without its end.
func parse(line string, r *Request) error {
	read := parseCommon
	if strings.HasPrefix(line, "{") {
		read = parseJSON
	}
	if err := read(line, r); err != nil {
		return err
	}
	if r.Time <= 0 || r.Time >= maxTime {
		return errLine
	}
	return nil
}

// known returns a text, or an empty one if it is the "-" that stands for none.
func known(text string) string {
	if text == "-" {
		return ""
	}
	return text
}
