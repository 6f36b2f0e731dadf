package keyfunc_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/headgate/headgate/keyfunc"
)

func TestEmptyPartIsNoKey(t *testing.T) {
	empty := func(*http.Request) (string, error) { return "", nil }
	for _, c := range []struct {
		name string
		key  keyfunc.Func
		want string
	}{
		{"Join first", keyfunc.Join(empty, keyfunc.Static("a")), ""},
		{"Join last", keyfunc.Join(keyfunc.Static("a"), empty), ""},
		{"Or falls through", keyfunc.Or(empty, keyfunc.RemoteIP()), "1:192.0.2.7"},
		{"Or of nothing else", keyfunc.Or(empty), ""},
		{"Or within Join", keyfunc.Join(keyfunc.Or(empty), keyfunc.Method()), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.key(request(nil))
			if got != c.want || (c.want == "") != errors.Is(err, keyfunc.ErrNoKey) {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// A client must not choose the weaker alternative by making the key of the stronger one ambiguous.
func TestAmbiguousKeyEndsJoinAndOr(t *testing.T) {
	header := keyfunc.Header("X-Api-Key")
	both := func(*http.Request) (string, error) { return "", errors.Join(keyfunc.ErrNoKey, keyfunc.ErrAmbiguous) }
	hidden, err := keyfunc.HMAC([]byte("16 or more bytes"), header)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]keyfunc.Func{
		"Or":                       keyfunc.Or(header, keyfunc.RemoteIP()),
		"Or, also without a key":   keyfunc.Or(both, keyfunc.RemoteIP()),
		"Or, the last alternative": keyfunc.Or(keyfunc.BearerToken(), header),
		"Or within Or":             keyfunc.Or(keyfunc.Or(header), keyfunc.RemoteIP()),
		"Join":                     keyfunc.Join(keyfunc.RemoteIP(), header),
		"HMAC":                     hidden,
		"HMAC within Or":           keyfunc.Or(hidden, keyfunc.RemoteIP()),
		"Or of a missing and that": keyfunc.Or(keyfunc.Cookie("sid"), header, keyfunc.RemoteIP()),
	} {
		t.Run(name, func(t *testing.T) {
			key, err := key(request(func(r *http.Request) { r.Header["X-Api-Key"] = []string{"abc", "z"} }))
			if key != "" || !errors.Is(err, keyfunc.ErrAmbiguous) {
				t.Errorf("got %q, %v", key, err)
			}
		})
	}
}

func TestOrTagsItsAlternatives(t *testing.T) {
	none := func(*http.Request) (string, error) { return "", keyfunc.ErrNoKey }
	first, _ := keyfunc.Or(keyfunc.Static("1:a"), keyfunc.Static("a"))(request(nil))
	second, _ := keyfunc.Or(none, keyfunc.Static("1:a"))(request(nil))
	if first == second {
		t.Errorf("the same value of two alternatives is one key: %q", first)
	}
	// A tag ends at its colon, so the eleventh alternative is not the second followed by a digit.
	many := make([]keyfunc.Func, 11)
	for i := range many {
		many[i] = none
	}
	many[10] = keyfunc.Static("a")
	if got, err := keyfunc.Or(none, many...)(request(nil)); got != "11:a" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestCallerKeepsItsSlice(t *testing.T) {
	parts := []keyfunc.Func{keyfunc.Static("a"), keyfunc.Static("b")}
	join, or := keyfunc.Join(parts...), keyfunc.Or(parts[0], parts[1:]...)
	parts[0], parts[1] = nil, nil
	if got, err := join(request(nil)); got != "1:a1:b" || err != nil {
		t.Errorf("Join: got %q, %v", got, err)
	}
	if got, err := or(request(nil)); got != "0:a" || err != nil {
		t.Errorf("Or: got %q, %v", got, err)
	}
}

func TestJoinArity(t *testing.T) {
	keys := map[string]string{}
	for name, parts := range map[string][]string{
		"one": {"1:a1:b"}, "two": {"a", "b"}, "two of other length": {"a1", "b"}, "three": {"1", "a1", "b"},
		"colon left": {"a:b", "c"}, "colon right": {"a", "b:c"},
	} {
		key := joined(t, parts)
		if other, taken := keys[key]; taken {
			t.Errorf("%s and %s are both %q", name, other, key)
		}
		keys[key] = name
	}
}
