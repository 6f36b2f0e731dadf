package core_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
)

func TestKeyFaults(t *testing.T) {
	for name, path := range map[string][]string{
		"empty": {""}, "empty inner part": {"a", ""}, "empty middle part": {"a", "", "c"}, "nine parts": strings.Split("123456789", ""),
	} {
		if k, err := core.NewKey(path[0], path[1:]...); !errors.Is(err, core.ErrKey) || k != (core.Key{}) {
			t.Errorf("%s: %v, %v", name, k, err)
		}
	}
}

func TestKeyEncoding(t *testing.T) {
	for name, tt := range map[string]struct {
		path []string
		want string // empty for a hash
	}{
		"plain ASCII":  {[]string{"acme", "user-1", "x@y.z="}, "{acme}:user-1:x@y.z="},
		"colons":       {[]string{"a:b", "c"}, "{a%3Ab}:c"},
		"braces":       {[]string{"{a}", "}"}, "{%7Ba%7D}:%7D"},
		"control":      {[]string{"\x00\n\r\x7f"}, "{%00%0A%0D%7F}"},
		"percent":      {[]string{"%41"}, "{%2541}"},
		"tilde":        {[]string{"~x"}, "{%7Ex}"},
		"64 bytes":     {[]string{strings.Repeat("x", 64)}, "{" + strings.Repeat("x", 64) + "}"},
		"65 bytes":     {[]string{strings.Repeat("x", 65)}, ""},
		"22 escaped":   {[]string{strings.Repeat("ä", 11)}, ""},
		"1 MiB":        {[]string{strings.Repeat("x", 1<<20)}, ""},
		"1 MiB, inner": {[]string{"a", strings.Repeat("\n", 1<<20)}, ""},
	} {
		k := newKey(t, tt.path[0], tt.path[1:]...)
		if tt.want == "" && !(strings.Contains(k.String(), "~") && len(k.String()) < 40) || tt.want != "" && k.String() != tt.want {
			t.Errorf("%s: %s", name, k)
		}
	}
}

func TestKeysAreInjective(t *testing.T) {
	part := rapid.OneOf(
		rapid.StringN(1, 5, -1),
		rapid.StringMatching(`[a%:{}~]{1,4}`),
		rapid.StringN(20, 80, -1),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 30), func(b []byte) string { return string(b) }),
	).Filter(func(s string) bool { return s != "" })
	path := rapid.SliceOfN(part, 1, 8)
	rapid.Check(t, func(t *rapid.T) {
		a, b := path.Draw(t, "a"), path.Draw(t, "b")
		if rapid.Bool().Draw(t, "rejoined") && len(a) > 1 {
			// The likeliest collision: the same text, split elsewhere.
			b = append([]string{a[0] + ":" + a[1]}, a[2:]...)
		}
		one, err1 := core.NewKey(a[0], a[1:]...)
		two, err2 := core.NewKey(b[0], b[1:]...)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if same := fmt.Sprintf("%q", a) == fmt.Sprintf("%q", b); (one.String() == two.String()) != same || (one == two) != same {
			t.Fatalf("%q is %s and %q is %s", a, one, b, two)
		}
		k := one.String()
		if len(k) > 8*65+2 || k[0] != '{' || strings.Count(k, "{") != 1 || strings.Count(k, "}") != 1 {
			t.Fatalf("%q is %s", a, k)
		}
		if strings.ContainsFunc(k, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Fatalf("%q is %q", a, k)
		}
		// The text in braces decides the hash slot, and it is the outermost part alone.
		alone, _ := core.NewKey(a[0])
		if !strings.HasPrefix(k, alone.String()) || strings.Index(k, "}") != len(alone.String())-1 {
			t.Fatalf("the slot of %s is not that of %s", k, alone)
		}
	})
}

func TestKeyParts(t *testing.T) {
	long := strings.Repeat("a very long part: ", 10)
	for _, parts := range [][]string{
		{"acme"}, {"acme", "bob"}, {"big corp", "a:b", "{x}", "100%", "%2F", "ü", "\x00"}, {long}, {"acme", long, "b:c", "12:x"},
		{"~"}, {"~" + strings.Repeat("x", 22)},
	} {
		k := newKey(t, parts[0], parts[1:]...)
		if got := k.Parts(); !slices.Equal(got, parts) {
			t.Errorf("%q: parts %q, want %q", k, got, parts)
		}
		if again := newKey(t, parts[0], parts[1:]...); again != k {
			t.Errorf("%q: equal parts make different keys", parts)
		}
	}
	if parts := (core.Key{}).Parts(); parts != nil {
		t.Errorf("the zero Key has parts %q", parts)
	}
}
