package accesslog

import (
	"bytes"
	"net/netip"
	"strconv"
	"time"
)

// parseCommon parses a line of the Common Log Format, which others extend at its end:
//
//	client identity user [10/Oct/2000:13:55:36 -0700] "GET /a?b HTTP/1.0" 200 2326 ...
//
// A virtual host may stand before it, as in Apache's vhost_combined.
func parseCommon(text []byte, e *Entry) error {
	open := bytes.Index(text, []byte(" ["))
	if open < 0 {
		return errLine
	}
	head, rest := text[:open], text[open+2:]
	client, head, ok := bytes.Cut(head, []byte{' '})
	if !ok {
		return errLine
	}
	if next, after, ok := bytes.Cut(head, []byte{' '}); ok && isVirtualHost(client, next) {
		e.Host, client, head = withoutPort(client), next, after
	}
	_, user, _ := bytes.Cut(head, []byte{' '}) // behind the identity
	e.Client, e.User = known(client), known(user)
	stamp, rest, _ := bytes.Cut(rest, []byte{']'})
	at, err := time.Parse("02/Jan/2006:15:04:05 -0700", string(stamp))
	line, ok := quoted(rest)
	if err != nil || !ok {
		return errLine
	}
	e.Time = at.UnixMicro()
	e.Method, e.Path = request(line)
	return nil
}

// isVirtualHost reports whether a line begins with a host, and not with the client.
func isVirtualHost(first, second []byte) bool {
	if len(second) < 2 || second[0] == '-' {
		return false
	}
	if _, err := netip.ParseAddr(string(second)); err == nil {
		return true
	}
	if _, err := netip.ParseAddr(string(first)); err == nil { // an IPv6 address ends like a port
		return false
	}
	port := first[bytes.LastIndexByte(first, ':')+1:]
	return len(port) < len(first) && isPort(port)
}

func withoutPort(host []byte) []byte {
	if i := bytes.LastIndexByte(host, ':'); i > 0 && isPort(host[i+1:]) {
		return host[:i]
	}
	return host
}

// quoted returns the text in the first quotes of a line. A quote in the text has a backslash before it.
func quoted(line []byte) (inside []byte, ok bool) {
	_, text, _ := bytes.Cut(line, []byte{'"'})
	for at := 0; ; at++ {
		i := bytes.IndexByte(text[at:], '"')
		if i < 0 {
			return nil, false
		}
		at += i
		if at == 0 || text[at-1] != '\\' || evenBackslashes(text[:at]) {
			return text[:at], true
		}
	}
}

// evenBackslashes reports whether a text ends with an even number of backslashes.
func evenBackslashes(text []byte) bool {
	return (len(text)-len(bytes.TrimRight(text, `\`)))%2 == 0
}

// request returns the method and the path of a request line. Both are empty if a client sent
// something else.
func request(line []byte) (method, path []byte) {
	method, target, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return nil, nil
	}
	target, _, _ = bytes.Cut(target, []byte{' '})
	for _, c := range method {
		if c < 'A' || c > 'Z' {
			return nil, nil
		}
	}
	return method, pathOf(target)
}

// pathOf returns the path of a request's target.
func pathOf(target []byte) []byte {
	target, _, _ = bytes.Cut(target, []byte{'?'})
	if i := bytes.Index(target, []byte("://")); i > 0 && target[0] != '/' {
		slash := bytes.IndexByte(target[i+3:], '/')
		if slash < 0 {
			return nil
		}
		return target[i+3+slash:]
	}
	return target
}

// isPort reports whether a text is the number of a port.
func isPort(text []byte) bool {
	_, err := strconv.ParseUint(string(text), 10, 16)
	return err == nil
}
