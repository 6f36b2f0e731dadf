package keyfunc_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/keyfunc"
)

// constant returns a Func with this outcome.
func constant(key string, err error) keyfunc.Func {
	return func(*http.Request) (string, error) { return key, err }
}

// joined returns the key that Join makes of these parts.
func joined(t interface{ Fatalf(string, ...any) }, parts []string) string {
	funcs := make([]keyfunc.Func, len(parts))
	for i, p := range parts {
		funcs[i] = constant(p, nil)
	}
	key, err := keyfunc.Must(keyfunc.Join(funcs[0], funcs[1:]...))(nil)
	if err != nil {
		t.Fatalf("Join: %v", err)
	}
	return key
}

func TestJoinAndOr(t *testing.T) {
	var (
		broken = errors.New("broken")
		a      = keyfunc.Must(keyfunc.Static("a"))
		ip     = keyfunc.RemoteIP()
		header = keyfunc.Must(keyfunc.Header("X-Api-Key"))
		empty  = constant("", nil)
		fails  = constant("", broken)
		both   = constant("", errors.Join(keyfunc.ErrNoKey, keyfunc.ErrAmbiguous))
		or     = func(first keyfunc.Func, others ...keyfunc.Func) keyfunc.Func {
			return keyfunc.Must(keyfunc.Or(first, others...))
		}
		join = func(first keyfunc.Func, others ...keyfunc.Func) keyfunc.Func {
			return keyfunc.Must(keyfunc.Join(first, others...))
		}
		hmac = func(inner keyfunc.Func) keyfunc.Func {
			return keyfunc.Must(keyfunc.HMAC([]byte("16 or more bytes"), inner))
		}
		hidden = hmac(header)
		twice  = []string{"abc", "z"}
	)
	for _, c := range []struct {
		name   string
		key    keyfunc.Func
		header []string // lines of X-Api-Key
		want   string
	}{
		{"Join", join(ip, a), nil, "9:192.0.2.71:a"},
		{"Join, empty first", join(empty, a), nil, noKey},
		{"Join, empty last", join(a, empty), nil, noKey},
		{"Join, missing", join(a, header), nil, noKey},
		{"Join, ambiguous", join(ip, header), twice, ambiguous},
		{"Join, failing", join(a, fails), nil, fault},
		{"HMAC, empty", hmac(empty), nil, noKey},
		{"HMAC, missing", hidden, nil, noKey},
		{"HMAC, ambiguous", hidden, twice, ambiguous},
		{"HMAC, failing", hmac(fails), nil, fault},
		{"Or, first", or(header, ip), []string{"k"}, "0:glTDKakoUPbVOd03b0gW7g"},
		{"Or, second", or(header, ip), nil, "1:192.0.2.7"},
		{"Or, empty", or(empty, ip), nil, "1:192.0.2.7"},
		{"Or, none", or(header, empty), nil, noKey},
		{"Or, failing", or(fails, ip), nil, fault},
		{"Or, none within Join", join(or(empty), keyfunc.Method()), nil, noKey},
		// A client must not choose the weaker key by making the stronger one ambiguous.
		{"Or, ambiguous", or(header, ip), twice, ambiguous},
		{"Or, ambiguous last", or(keyfunc.BearerToken(), header), twice, ambiguous},
		{"Or, ambiguous between", or(keyfunc.BearerToken(), header, ip), twice, ambiguous},
		{"Or, ambiguous within Or", or(or(header), ip), twice, ambiguous},
		{"Or, ambiguous within HMAC", or(hidden, ip), twice, ambiguous},
		{"Or, ambiguous and missing", or(both, ip), nil, fault},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, c.key, request(func(r *http.Request) { r.Header["X-Api-Key"] = c.header }), c.want)
		})
	}
	if _, err := join(a, fails)(request(nil)); !errors.Is(err, broken) {
		t.Errorf("Join: got %v, want the part's error", err)
	}
	if _, err := or(fails, ip)(request(nil)); !errors.Is(err, broken) {
		t.Errorf("Or: got %v, want the Func's error", err)
	}
}

func TestOrNumbersItsKeys(t *testing.T) {
	missing := constant("", keyfunc.ErrNoKey)
	first, _ := keyfunc.Must(keyfunc.Or(constant("1:a", nil), constant("a", nil)))(request(nil))
	second, _ := keyfunc.Must(keyfunc.Or(missing, constant("1:a", nil)))(request(nil))
	if first == second {
		t.Errorf("the same value under two Funcs is one key: %q", first)
	}
	// The number ends at its colon, so that Func 11 is not Func 1 with a key that begins with 1.
	many := slices.Repeat([]keyfunc.Func{missing}, 11)
	many[10] = constant("a", nil)
	expect(t, keyfunc.Must(keyfunc.Or(missing, many...)), request(nil), "11:a")
}

func TestJoinAndOrCopyTheirFuncs(t *testing.T) {
	funcs := []keyfunc.Func{constant("a", nil), constant("b", nil)}
	join := keyfunc.Must(keyfunc.Join(funcs[0], funcs[1:]...))
	or := keyfunc.Must(keyfunc.Or(constant("", nil), funcs...))
	funcs[0], funcs[1] = nil, nil
	expect(t, join, request(nil), "1:a1:b")
	expect(t, or, request(nil), "1:a")
}

func TestJoinIsInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringOfN(rapid.RuneFrom([]rune("a:1~{}")), 1, 4, -1)
		a := rapid.SliceOfN(part, 1, 4).Draw(t, "a")
		b := rapid.SliceOfN(part, 1, 4).Draw(t, "b")
		if (joined(t, a) == joined(t, b)) != slices.Equal(a, b) {
			t.Fatalf("%q and %q: %q and %q", a, b, joined(t, a), joined(t, b))
		}
	})
}

func FuzzJoin(f *testing.F) {
	f.Add("a\nb", "a\nb")
	f.Add("1:a\nb", "1\na:b")
	f.Add("0:", "0\n:")
	f.Add("1:a1:b", "a\nb")
	f.Add("a1\nb", "a\nb")
	f.Add("1\na1\nb", "a\nb")
	f.Add("a:b\nc", "a\nb:c")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
		if slices.Contains(x, "") || slices.Contains(y, "") {
			t.Skip("an empty part has no key")
		}
		if (joined(t, x) == joined(t, y)) != (a == b) {
			t.Fatalf("%q and %q", a, b)
		}
	})
}

func TestHMAC(t *testing.T) {
	secret := []byte("0123456789abcdef")
	hidden := keyfunc.Must(keyfunc.HMAC(secret, keyfunc.RemoteIP()))
	from := func(peer string) *http.Request {
		return request(func(r *http.Request) { r.RemoteAddr = peer })
	}
	const want = "n77YU26IASR3CjNgPzXpBg" // of openssl dgst -sha256 -hmac
	expect(t, hidden, from("192.0.2.7:1"), want)
	expect(t, hidden, from("192.0.2.7:2"), want)
	if other, err := hidden(from("192.0.2.8:1")); other == want || err != nil {
		t.Errorf("another address: got %q, %v", other, err)
	}
	bySecret := keyfunc.Must(keyfunc.HMAC([]byte("another secret of some length"), keyfunc.RemoteIP()))
	if other, err := bySecret(from("192.0.2.7:1")); other == want || err != nil {
		t.Errorf("another secret: got %q, %v", other, err)
	}

	secret[0]++ // HMAC has its own copy
	expect(t, hidden, from("192.0.2.7:1"), want)
}
