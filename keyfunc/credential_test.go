package keyfunc_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/keyfunc"
)

// Each row says whose key it is by a number, 0 for no key: equal numbers are equal keys, different ones different keys.
func TestCredentials(t *testing.T) {
	authorization := func(values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header["Authorization"] = values }
	}
	cookie := func(lines ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header["Cookie"] = lines }
	}
	query := func(raw string) func(*http.Request) {
		return func(r *http.Request) { r.URL.RawQuery = raw }
	}
	type row struct {
		name   string
		change func(*http.Request)
		who    int
	}
	for _, c := range []struct {
		name string
		key  keyfunc.Func
		rows []row
	}{
		{"bearer token", keyfunc.BearerToken(), []row{
			{"token", authorization("Bearer abc.DEF-_~+/=="), 1},
			{"lower case", authorization("bearer abc.DEF-_~+/=="), 1},
			{"spaces", authorization("BEARER   abc.DEF-_~+/== "), 1},
			{"another token", authorization("Bearer abc.def-_~+/=="), 2},
			{"very long", authorization("Bearer " + strings.Repeat("a", 1<<20)), 3},
			{"missing", authorization(), 0},
			{"other scheme", authorization("Basic abc"), 0},
			{"scheme with a prefix", authorization("xBearer abc"), 0},
			{"no token", authorization("Bearer "), 0},
			{"scheme alone", authorization("Bearer"), 0},
			{"only padding", authorization("Bearer =="), 0},
			{"two tokens", authorization("Bearer abc def"), 0},
			{"padding inside", authorization("Bearer a=b"), 0},
			{"tab", authorization("Bearer\tabc"), 0},
			{"two headers", authorization("Bearer abc", "Bearer abc"), 0},
		}},
		{"cookie", keyfunc.Cookie("sid"), []row{
			{"cookie", cookie("a=1; sid=v1; b=2"), 1},
			{"quoted", cookie(`sid="v1"`), 1},
			{"another", cookie("sid=v2"), 2},
			{"a longer name", cookie("xsid=v1"), 0},
			{"other case", cookie("SID=v1"), 0},
			{"twice", cookie("sid=v1; sid=v1"), 0},
			{"in two lines", cookie("sid=v1", "sid=v2"), 0},
			{"empty", cookie("sid="), 0},
			{"missing", cookie(), 0},
		}},
		{"query", keyfunc.Query("api_key"), []row{
			{"parameter", query("a=1&api_key=v1"), 1},
			{"escaped", query("api%5Fkey=%76%31"), 1},
			{"another", query("api_key=v2"), 2},
			{"twice", query("api_key=v1&api_key=v1"), 0},
			{"empty", query("api_key="), 0},
			{"no value", query("api_key"), 0},
			{"missing", query(""), 0},
			{"malformed", query("api_key=v1&%zz"), 0},
			{"semicolon", query("a=1;api_key=v1"), 0},
		}},
		{"name", keyfunc.Name(func(r *http.Request) string { return r.URL.Query().Get("login") }, nil), []row{
			{"name", query("login=bob"), 1},
			{"case and white space", query("login=+%42ob%09"), 1},
			{"another", query("login=alice"), 2},
			{"blank", query("login=+"), 0},
			{"missing", query(""), 0},
		}},
		{"name with a normalizer", keyfunc.Name(func(r *http.Request) string { return r.URL.Query().Get("login") },
			func(s string) string { return strings.Replace(s, "e\u0301", "\u00e9", 1) }), []row{
			{"composed", query("login=Andr" + url.QueryEscape("\u00e9")), 1},
			{"decomposed", query("login=Andr" + url.QueryEscape("e\u0301")), 1},
			{"its case is its own", query("login=andr" + url.QueryEscape("\u00e9")), 2},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := make(map[string]int)
			keys := make(map[int]string)
			for _, row := range c.rows {
				key, err := c.key(request(row.change))
				if row.who == 0 {
					if key != "" || !errors.Is(err, keyfunc.ErrNoKey) {
						t.Errorf("%s: got %q, %v", row.name, key, err)
					}
					continue
				}
				if err != nil || len(key) != 22 {
					t.Errorf("%s: got %q, %v", row.name, key, err)
				}
				if who, ok := seen[key]; ok && who != row.who {
					t.Errorf("%s: the key of %d", row.name, who)
				}
				if other, ok := keys[row.who]; ok && other != key {
					t.Errorf("%s: another key than the same one before", row.name)
				}
				seen[key], keys[row.who] = row.who, key
			}
		})
	}
	for name, f := range map[string]keyfunc.Func{
		"cookie's name": keyfunc.Cookie("a b"), "no cookie's name": keyfunc.Cookie(""), "no parameter's name": keyfunc.Query(""),
		"nothing read": keyfunc.Name(nil, nil),
	} {
		if _, err := f(request(nil)); err == nil || errors.Is(err, keyfunc.ErrNoKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzBearerToken(f *testing.F) {
	for _, s := range []string{"Bearer a", "bearer  b==", "Basic x", "Bearer", "Bearer =", "BEARER a b", ""} {
		f.Add(s)
	}
	key := keyfunc.BearerToken()
	f.Fuzz(func(t *testing.T, s string) {
		of := func(value string) (string, error) {
			return key(request(func(r *http.Request) { r.Header["Authorization"] = []string{value} }))
		}
		got, err := of(s)
		if err != nil {
			if got != "" || !errors.Is(err, keyfunc.ErrNoKey) {
				t.Fatalf("got %q, %v", got, err)
			}
			return
		}
		fields := strings.Fields(s)
		if len(fields) != 2 || !strings.EqualFold(fields[0], "bearer") {
			t.Fatalf("%q has a token", s)
		}
		if same, err := of("Bearer " + fields[1]); same != got || err != nil {
			t.Fatalf("%q and its canonical form: %q and %q", s, got, same)
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, s := range []string{"k=v", "%6b=v", "k=v&k=w", "k", "k=%zz", ";k=v", "a=b&k=%20"} {
		f.Add(s)
	}
	key := keyfunc.Query("k")
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := key(request(func(r *http.Request) { r.URL.RawQuery = raw }))
		if err != nil {
			if got != "" || !errors.Is(err, keyfunc.ErrNoKey) {
				t.Fatalf("got %q, %v", got, err)
			}
			return
		}
		values, err := url.ParseQuery(raw)
		if err != nil || len(values["k"]) != 1 {
			t.Fatalf("%q has a key %q", raw, got)
		}
	})
}

func FuzzCookie(f *testing.F) {
	for _, s := range []string{"sid=v", `sid="v"`, "sid=v; sid=w", "a=b;sid=", "sid=v\nsid=w", "; ;=", "sid=a\x00b"} {
		f.Add(s)
	}
	key := keyfunc.Cookie("sid")
	f.Fuzz(func(t *testing.T, lines string) {
		r := request(func(r *http.Request) { r.Header["Cookie"] = strings.Split(lines, "\n") })
		got, err := key(r)
		if err != nil {
			if got != "" || !errors.Is(err, keyfunc.ErrNoKey) {
				t.Fatalf("got %q, %v", got, err)
			}
			return
		}
		if _, err := r.Cookie("sid"); err != nil || len(got) != 22 {
			t.Fatalf("%q: %q, but %v", lines, got, err)
		}
	})
}
