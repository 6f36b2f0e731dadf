package keyfunc

import (
	"net/netip"
	"strings"
)

// Forwarded returns a Func like TrustedProxies for the Forwarded header (RFC 7239). Its key is the
// rightmost for= address that is not one of your proxies, read only if the peer is one.
//
// A node may have a port. The key is the peer's address if the walk meets a node that is unknown or
// obfuscated ("_hidden"), or an element without for= or with two of them.
//
// Forwarded is wrong if a proxy passes the header on without adding to it, as most proxies do that
// write X-Forwarded-For: then the client writes it. Never combine it with TrustedProxies by Or,
// because the client would choose the header.
func Forwarded(cidrs ...string) (Func, error) {
	trusted, err := parsePeers("Forwarded", cidrs)
	return byAddress(clientBehind(trusted, forwarded), err)
}

var forwarded = chain{
	header:    "Forwarded",
	lastComma: lastComma,
	parse:     forwardedNode,
}

// lastComma returns the index of the last comma outside a quoted string, or -1. It reads from the
// right, where the trusted proxies have written: a quote that a client leaves open cannot swallow
// what they added.
func lastComma(s string) int {
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch {
		case s[i] == '"' && !(quoted && escaped(s, i)):
			quoted = !quoted
		case s[i] == ',' && !quoted:
			return i
		}
	}
	return -1
}

// escaped reports whether an odd number of backslashes precedes s[i].
func escaped(s string, i int) bool {
	n := i
	for n > 0 && s[n-1] == '\\' {
		n--
	}
	return (i-n)%2 == 1
}

// forwardedNode returns the address in the for parameter of an element (RFC 7239, section 4).
func forwardedNode(element string) (addr netip.Addr, ok bool) {
	rest := element
	for {
		rest = strings.TrimLeft(rest, "; \t") // pairs may be empty
		if rest == "" {
			return addr, ok
		}
		name, after, found := strings.Cut(rest, "=")
		if !found {
			return netip.Addr{}, false
		}
		value, after, valid := parameterValue(after)
		if !valid {
			return netip.Addr{}, false
		}
		if strings.EqualFold(strings.Trim(name, " \t"), "for") {
			if ok {
				return netip.Addr{}, false
			}
			if addr, ok = parseAddr(value); !ok {
				return netip.Addr{}, false
			}
		}
		rest = after
	}
}

// parameterValue reads a token or a quoted string up to the next semicolon, which begins rest. It
// accepts the colons and brackets of an address outside quotes, because some proxies omit them.
func parameterValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexByte(s, ';')
		if end < 0 {
			end = len(s)
		}
		value = strings.TrimRight(s[:end], " \t")
		return value, s[end:], value != "" && !strings.ContainsAny(value, "\" \t\\")
	}
	value, rest, ok = quoted(s)
	rest = strings.TrimLeft(rest, " \t")
	return value, rest, ok && (rest == "" || rest[0] == ';')
}
