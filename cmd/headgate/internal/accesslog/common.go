package accesslog

import (
	"cmp"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// common is a line of the Common Log Format, which others extend at its end:
//
//	client identity user [10/Oct/2000:13:55:36 -0700] "GET /a?b HTTP/1.0" 200 2326 ...
//
// A virtual host may stand before it, with its port as in Apache's vhost_combined or without, if the
// identity is "-". A quote in the request has a backslash before it.
var common = regexp.MustCompile(`^(?:(\S+?)(?::\d+)? ([^\s-]\S*) - |(\S+) \S+ )(.*?) ` +
	`\[([^\[\]]+)\] [^"]*"((?:[^"\\]|\\.)*)"`)

// commonTime is the layout of a time in the Common Log Format.
const commonTime = "02/Jan/2006:15:04:05 -0700"

// parseCommon parses a line of the Common Log Format.
func parseCommon(line string, r *Request) error {
	m := common.FindStringSubmatch(line)
	if m == nil {
		return errLine
	}
	at, err := time.Parse(commonTime, m[5])
	if err != nil {
		return errLine
	}
	r.Time, r.Host, r.Client, r.User = at.UnixMicro(), m[1], known(cmp.Or(m[2], m[3])), known(m[4])
	r.Method, r.Path = request(m[6])
	return nil
}

// request returns the method and the path of a request line. Both are empty if a client sent
// something else.
func request(line string) (method, path string) {
	words := strings.Split(line, " ")
	if len(words) < 2 || strings.Trim(words[0], "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return "", ""
	}
	return words[0], pathOf(words[1])
}

// pathOf returns the path of a request's target. A client of a proxy names the whole URL.
func pathOf(target string) string {
	if !strings.HasPrefix(target, "/") {
		u, err := url.Parse(target)
		if err != nil {
			return ""
		}
		return u.EscapedPath()
	}
	path, _, _ := strings.Cut(target, "?")
	return path
}
