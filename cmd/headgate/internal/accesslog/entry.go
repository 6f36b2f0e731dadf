// Package accesslog reads the access logs of web servers: the Common and the Combined Log Format of
// Apache and nginx, also behind the name of a virtual host, Traefik's extension of it, and the
// lines of JSON of Caddy, Traefik and others. A log may be compressed by gzip.
package accesslog

import "errors"

// Entry is one request. Its texts are valid until the function that receives it returns. They are
// empty if the line does not tell them.
type Entry struct {
	Time   int64 // microseconds since 1970
	Client []byte
	User   []byte
	Host   []byte
	Method []byte
	Path   []byte // without the query
	Line   int64  // from 1
}

// errLine is the error of a line that is no request of a known format.
var errLine = errors.New("accesslog: no line of a known format")

// maxTime bounds the time of a request: the first microsecond of the year 2200. Limits count in
// numbers below 2^53, and a replay in durations, which end in the year 2262.
const maxTime = 7_258_118_400_000_000

// parse fills in the entry of a line without its end.
func parse(line []byte, e *Entry) error {
	*e = Entry{Line: e.Line}
	read := parseCommon
	if len(line) > 0 && line[0] == '{' {
		read = parseJSON
	}
	if err := read(line, e); err != nil {
		return err
	}
	if e.Time <= 0 || e.Time >= maxTime {
		return errLine
	}
	return nil
}

// known returns a text, or nil if it is the "-" that stands for none.
func known(text []byte) []byte {
	if len(text) == 1 && text[0] == '-' {
		return nil
	}
	return text
}
