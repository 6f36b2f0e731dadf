package inspect

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
)

// ParseKey returns the key of a text that an operator writes: its parts, outermost first, with
// slashes between them, such as acme/bob. A slash in a part is written %2F, and a percent sign %25.
// An IP prefix, such as 2001:db8::/64, is one part. The text may also be the key as it stands in
// the names of Redis keys, such as {acme}:bob. The errors wrap core.ErrKey.
func ParseKey(text string) (core.Key, error) {
	if text = strings.TrimSpace(text); strings.HasPrefix(text, "{") {
		return parsePath(text)
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return core.NewKey(p.String())
	}
	parts := strings.Split(text, "/")
	for i, part := range parts {
		plain, err := url.PathUnescape(part)
		if err != nil {
			return core.Key{}, fmt.Errorf("%w: part %d is %q: write %% as %%25", core.ErrKey, i+1, part)
		}
		parts[i] = plain
	}
	return core.NewKey(parts[0], parts[1:]...)
}

// keyPath is a key as it stands in the names of Redis keys: at most 8 parts, or the hashes of some.
var keyPath = regexp.MustCompile(`^\{` + pathPart + `\}(:` + pathPart + `){0,7}$`)

const pathPart = `(([A-Za-z0-9_.@=-]|%[0-9A-F]{2}){1,64}|~[A-Za-z0-9_-]{22})`

// parsePath is ParseKey for the form in the names of Redis keys.
func parsePath(path string) (core.Key, error) {
	key, known := core.Inside(hub.Pass{}).KeyAt(path), keyPath.MatchString(path)
	if known && !strings.Contains(path, "~") { // the text of a hash is not known
		plain := key.Parts()
		same, err := core.NewKey(plain[0], plain[1:]...)
		known = err == nil && same == key
	}
	if !known {
		return core.Key{}, fmt.Errorf("%w: %.100q is not as Redis has it, such as {acme}:bob",
			core.ErrKey, path)
	}
	return key, nil
}

// FormatKey returns the text of a key that ParseKey reads.
func FormatKey(k core.Key) string {
	if strings.Contains(k.String(), "~") { // a part is known by its hash
		return k.String()
	}
	parts := k.Parts()
	if len(parts) == 1 {
		if p, err := netip.ParsePrefix(parts[0]); err == nil && p.String() == parts[0] {
			return parts[0]
		}
	}
	for i, part := range parts {
		parts[i] = slashes.Replace(part)
		if i == 0 && strings.HasPrefix(part, "{") {
			parts[i] = "%7B" + parts[i][1:]
		}
		if part != strings.TrimSpace(part) || !isText(part) {
			parts[i] = url.PathEscape(part)
		}
	}
	text := strings.Join(parts, "/")
	if _, err := netip.ParsePrefix(text); err == nil { // an address and a number: it would be one part
		return k.String()
	}
	return text
}

// isText reports whether a part goes through a form and a terminal as it is: a browser sends a line
// break in a form as two characters.
func isText(part string) bool {
	return utf8.ValidString(part) && !strings.ContainsFunc(part, unicode.IsControl)
}

var slashes = strings.NewReplacer("/", "%2F", "%", "%25")

// around returns a key and the keys around it, outermost first.
func around(k core.Key) (all []core.Key) {
	path := k.String()
	for i := strings.IndexByte(path, '}') + 1; i < len(path); {
		all = append(all, core.Inside(hub.Pass{}).KeyAt(path[:i]))
		next := strings.IndexByte(path[i+1:], ':')
		if next < 0 {
			break
		}
		i += 1 + next
	}
	return append(all, k)
}
