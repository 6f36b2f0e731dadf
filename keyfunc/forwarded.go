package keyfunc

import (
	"net/netip"
	"strings"
)

// Forwarded is TrustedProxies for the header Forwarded (RFC 7239): the rightmost for= that is not an address of a proxy
// of yours, of a request whose peer is one. Nodes may have ports; unknown and obfuscated ones ("_hidden") cannot tell, nor can
// an element without for= or with two, and the key is the peer's address there.
//
// It is wrong where a proxy of yours passes the header on without adding to it, as nearly all do that write
// X-Forwarded-For: then clients write it themselves. Never read both headers with Or, because a client would choose
// between them.
func Forwarded(cidrs ...string) (Func, error) { return IPv6Prefix(64).Forwarded(cidrs...) }

var forwarded = chain{
	header:    "Forwarded",
	lastComma: lastComma,
	parse:     forwardedNode,
}

// lastComma is the last comma outside a quoted string. It reads from the right, where the trusted proxies have
// written, so that a quote that a client leaves open cannot swallow what they added.
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

// escaped says whether an odd number of backslashes stands before s[i].
func escaped(s string, i int) bool {
	n := i
	for n > 0 && s[n-1] == '\\' {
		n--
	}
	return (i-n)%2 == 1
}

// forwardedNode is the address of an element's for parameter (RFC 7239, section 4).
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

// parameterValue reads a token or a quoted string up to the next semicolon, with which rest begins. It also takes the
// colons and brackets of addresses whose writer has forgotten the quotes.
func parameterValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexByte(s, ';')
		if end < 0 {
			end = len(s)
		}
		value = strings.TrimRight(s[:end], " \t")
		return value, s[end:], value != "" && !strings.ContainsAny(value, "\" \t\\")
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i < len(s) {
				b.WriteByte(s[i])
			}
		case '"':
			rest = strings.TrimLeft(s[i+1:], " \t")
			return b.String(), rest, rest == "" || rest[0] == ';'
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}
