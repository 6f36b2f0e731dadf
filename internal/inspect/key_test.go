package inspect_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
)

func TestParseKey(t *testing.T) {
	long := strings.Repeat("x", 80)
	for text, parts := range map[string][]string{
		"acme":                           {"acme"},
		" acme/bob ":                     {"acme", "bob"},
		"acme/a%2Fb":                     {"acme", "a/b"},
		"acme/100%25":                    {"acme", "100%"},
		"192.0.2.7":                      {"192.0.2.7"},
		"2001:db8::/64":                  {"2001:db8::/64"},
		"acme/2001:db8::%2F64":           {"acme", "2001:db8::/64"},
		"{acme}":                         {"acme"},
		"{acme}:bob:x":                   {"acme", "bob", "x"},
		"{acme}:2001%3Adb8%3A%3A%2F64":   {"acme", "2001:db8::/64"},
		"<script>alert(1)<%2Fscript>":    {"<script>alert(1)</script>"},
		"%7Bacme}":                       {"{acme}"},
		"acme/" + long:                   {"acme", long},
		"{192.0.2.7}:24":                 {"192.0.2.7", "24"},
		"{2001%3Adb8%3A%3A1}:64":         {"2001:db8::1", "64"},
		"a%0Db/%0A/%7F":                  {"a\rb", "\n", "\x7f"},
		"%FF":                            {"\xff"},
		"user@example.com/Zürich/\u202e": {"user@example.com", "Zürich", "\u202e"},
	} {
		want := newKey(t, parts[0], parts[1:]...)
		got, err := inspect.ParseKey(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		again, err := inspect.ParseKey(inspect.FormatKey(want))
		if err != nil || again.String() != want.String() {
			t.Errorf("%q is written as %q: %v, %v", text, inspect.FormatKey(want), again, err)
		}
		if path, err := inspect.ParseKey(want.String()); err != nil || path.String() != want.String() {
			t.Errorf("%q: %v, %v", want, path, err)
		}
	}
	for _, text := range []string{
		"", " ", "/", "acme/", "/bob", "acme//bob", "acme/%zz", "{acme", "{acme}bob", "{acme}:", "{}", "{a}:%41",
		"{acme}:~short", "{acme}:b b", "{a}:1:2:3:4:5:6:7:8", "a/1/2/3/4/5/6/7/8", "{a}:{b}",
	} {
		if key, err := inspect.ParseKey(text); !errors.Is(err, core.ErrKey) {
			t.Errorf("%q: %v, %v", text, key, err)
		}
	}
}

// A key reads back from a form and from a terminal, which change control characters and what is not
// UTF-8.
func TestFormattedKeyIsText(t *testing.T) {
	for _, part := range []string{"a\rb", "a\nb", "\x1b[2J", "\xff", "\u0085x"} {
		text := inspect.FormatKey(newKey(t, "acme", part))
		if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			t.Errorf("%q is written as %q", part, text)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, text := range []string{"acme/bob", "{acme}:bob", "%7Ba/b%2Fc", "2001:db8::/64", " x /y ", "~", "{~aaaaaaaaaaaaaaaaaaaaaa}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := inspect.ParseKey(text)
		if err != nil {
			return
		}
		again, err := inspect.ParseKey(inspect.FormatKey(key))
		if err != nil || again.String() != key.String() {
			t.Errorf("%q: %q is written as %q, which is %q, %v", text, key, inspect.FormatKey(key), again, err)
		}
		if parts := key.Parts(); parts != nil {
			if same := newKey(t, parts[0], parts[1:]...); same.String() != key.String() || slices.Contains(parts, "") {
				t.Errorf("%q has the parts %q", key, parts)
			}
		}
	})
}
