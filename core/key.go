package core

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/maphash"
	"net/url"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/request"
)

// ErrKey is wrapped by the errors of an unusable key.
var ErrKey = errors.New("core: unusable key")

const (
	maxKeyParts = 8
	maxPartSize = 64
	hashMark    = "~" // begins a hash; no escaped part holds it
)

// Key says whose limit a charge counts against. It is a path, such as tenant and user, outermost
// part first. The outermost part picks the hash slot on a Redis Cluster: one script decides all
// charges that share it. A decision on the zero value is an error. A Key is immutable, comparable
// and safe for concurrent use.
type Key struct {
	in    request.Key // its path is {outermost}:inner:inner, every part escaped
	given string      // the parts, each behind its length, if path holds a hash of one
}

// NewKey returns a key of 1 to 8 parts. A part may hold any bytes and must not be empty. Different
// parts always make different keys: bytes other than A-Z a-z 0-9 _ . - @ and = are escaped, and a
// part that is longer than 64 bytes then is replaced by a hash (SHA-256, 128 bits). Parts are
// readable in Redis, so hash secret and personal ones first, as keyfunc.HMAC does. The errors wrap
// ErrKey.
func NewKey(outermost string, inner ...string) (Key, error) {
	if len(inner) >= maxKeyParts {
		return Key{}, fmt.Errorf("%w: it has %d parts, at most %d are possible",
			ErrKey, len(inner)+1, maxKeyParts)
	}
	if outermost == "" {
		return Key{}, fmt.Errorf("%w: its outermost part is empty", ErrKey)
	}
	var room [128]byte // of the stack, where most paths fit
	b := append(appendPart(append(room[:0], '{'), outermost), '}')
	k := Key{in: request.Key{Outer: len(b)}}
	for i, part := range inner {
		if part == "" {
			return Key{}, fmt.Errorf("%w: its part %d is empty", ErrKey, i+2)
		}
		b = appendPart(append(b, ':'), part)
	}
	k.in.Path = string(b)
	k.in.KeyHash = maphash.String(hashes, k.in.Path)
	if strings.Contains(k.in.Path, hashMark) {
		for _, part := range append([]string{outermost}, inner...) {
			k.given += strconv.Itoa(len(part)) + ":" + part
		}
	}
	return k, nil
}

// keyAt returns the key of a path. Its Parts are not known if the path holds a hash.
func keyAt(path string) Key {
	return Key{in: request.Key{
		Path: path, Outer: strings.IndexByte(path, '}') + 1, KeyHash: maphash.String(hashes, path),
	}}
}

// Parts returns the parts of the key as NewKey was given them, outermost first. It is nil for the
// zero Key, and for a key from Redis of which NewKey has replaced a part by a hash.
func (k Key) Parts() (parts []string) {
	for rest := k.given; rest != ""; {
		size, tail, _ := strings.Cut(rest, ":")
		n, _ := strconv.Atoi(size) // NewKey wrote it
		parts, rest = append(parts, tail[:n]), tail[n:]
	}
	if parts != nil || k.in.Path == "" || strings.Contains(k.in.Path, hashMark) {
		return parts
	}
	for part := range strings.SplitSeq(k.in.Path[1:k.in.Outer-1]+k.in.Path[k.in.Outer:], ":") {
		plain, err := url.PathUnescape(part)
		if err != nil {
			return nil // the key is that of another program
		}
		parts = append(parts, plain)
	}
	return parts
}

// String returns the key as the names of Redis keys hold it.
func (k Key) String() string { return k.in.Path }

// hashes is the seed by which this process hashes names. Nobody can choose names of equal hashes.
var hashes = maphash.MakeSeed()

// appendPart appends a part, its bytes escaped as % and two digits, or its hash.
func appendPart(b []byte, part string) []byte {
	const digits = "0123456789ABCDEF"
	begins := len(b)
	for i := 0; i < len(part) && len(b)-begins <= maxPartSize; i++ {
		if c := part[i]; bare(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	if len(b)-begins <= maxPartSize {
		return b
	}
	sum := sha256.Sum256([]byte(part))
	return base64.RawURLEncoding.AppendEncode(append(b[:begins], hashMark...), sum[:16])
}

func bare(c byte) bool { return plain(rune(c)) || c == '@' || c == '=' }
