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
func (p *parser) parseCommon(line []byte, e *Entry) error {
	open := bytes.Index(line, []byte(" ["))
	if open < 0 {
		return errLine
	}
	head, rest := line[:open], line[open+2:]
	client, head, ok := bytes.Cut(head, []byte{' '})
	if !ok {
		return errLine
	}
	if next, after, ok := bytes.Cut(head, []byte{' '}); ok && isVirtualHost(client, next) {
		e.Host, client, head = withoutPort(client), next, after
	}
	_, user, _ := bytes.Cut(head, []byte{' '}) // behind the identity
	e.Client, e.User = known(client), known(user)
	if len(rest) < len(p.stamp)+1 || rest[len(p.stamp)] != ']' {
		return errLine
	}
	if e.Time = p.time(rest[:len(p.stamp)]); e.Time <= 0 {
		return errLine
	}
	quoted, _, ok := quoted(rest[len(p.stamp)+1:])
	if !ok {
		return errLine
	}
	e.Method, e.Path = request(quoted)
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

// quoted returns the text in the first quotes of a line, and what is behind them. A quote in the
// text has a backslash before it.
func quoted(text []byte) (inside, after []byte, ok bool) {
	i := bytes.IndexByte(text, '"')
	if i < 0 {
		return nil, nil, false
	}
	text = text[i+1:]
	for at := 0; ; at++ {
		i := bytes.IndexByte(text[at:], '"')
		if i < 0 {
			return nil, nil, false
		}
		at += i
		if at == 0 || text[at-1] != '\\' || evenBackslashes(text[:at]) {
			return text[:at], text[at+1:], true
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

// time returns the microseconds of a time such as 10/Oct/2000:13:55:36 -0700, or 0.
func (p *parser) time(stamp []byte) int64 {
	if p.micros > 0 && bytes.Equal(stamp, p.stamp[:]) {
		return p.micros
	}
	t, err := time.Parse("02/Jan/2006:15:04:05 -0700", string(stamp))
	if err != nil {
		return 0
	}
	copy(p.stamp[:], stamp)
	p.micros = t.UnixMicro()
	return p.micros
}
