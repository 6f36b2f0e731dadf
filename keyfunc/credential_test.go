package keyfunc_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/keyfunc"
)

const (
	noKey     = 0
	ambiguous = -1
)

// Each row names its client by a positive number: equal numbers must have equal keys, different
// numbers different keys.
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
		client int
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
			{"missing", authorization(), noKey},
			{"other scheme", authorization("Basic abc"), noKey},
			{"scheme with a prefix", authorization("xBearer abc"), noKey},
			{"no token", authorization("Bearer "), noKey},
			{"scheme alone", authorization("Bearer"), noKey},
			{"only padding", authorization("Bearer =="), ambiguous},
			{"two tokens", authorization("Bearer abc def"), ambiguous},
			{"padding inside", authorization("Bearer a=b"), ambiguous},
			{"tab", authorization("Bearer\tabc"), ambiguous},
			{"no-break space", authorization("Bearer\u00a0abc"), ambiguous},
			{"colon", authorization("Bearer: abc"), ambiguous},
			{"colon in the token", authorization("Bearer sk:abc"), ambiguous},
			{"scheme and white space", authorization("Bearer  \t"), noKey},
			{"two schemes", authorization("Basic abc", "Bearer abc"), ambiguous},
			{"two headers", authorization("Bearer abc", "Bearer abc"), ambiguous},
		}},
		{"cookie", keyfunc.Cookie("sid"), []row{
			{"cookie", cookie("a=1; sid=v1; b=2"), 1},
			{"quoted", cookie(`sid="v1"`), 1},
			{"another", cookie("sid=v2"), 2},
			{"a longer name", cookie("xsid=v1"), noKey},
			{"other case", cookie("SID=v1"), noKey},
			{"twice", cookie("sid=v1; sid=v1"), ambiguous},
			{"in two lines", cookie("sid=v1", "sid=v2"), ambiguous},
			{"empty and not", cookie("sid=; sid=v1"), ambiguous},
			{"empty", cookie("sid="), noKey},
			{"missing", cookie(), noKey},
		}},
		{"query", keyfunc.Query("api_key"), []row{
			{"parameter", query("a=1&api_key=v1"), 1},
			{"escaped", query("api%5Fkey=%76%31"), 1},
			{"another", query("api_key=v2"), 2},
			{"twice", query("api_key=v1&api_key=v1"), ambiguous},
			{"empty and not", query("api_key=&api_key=v1"), ambiguous},
			{"malformed elsewhere", query("api_key=v1&other=%zz"), ambiguous},
			{"malformed without the parameter", query("other=%zz"), ambiguous},
			{"empty", query("api_key="), noKey},
			{"no value", query("api_key"), noKey},
			{"missing", query(""), noKey},
			{"malformed", query("api_key=v1&%zz"), ambiguous},
			{"semicolon", query("a=1;api_key=v1"), ambiguous},
		}},
		{"name", keyfunc.Name(func(r *http.Request) string { return r.URL.Query().Get("login") }, nil), []row{
			{"name", query("login=bob"), 1},
			{"case and white space", query("login=+%42ob%09"), 1},
			{"another", query("login=alice"), 2},
			{"blank", query("login=+"), noKey},
			{"missing", query(""), noKey},
		}},
		{"name with a normalizer", keyfunc.Name(func(r *http.Request) string { return r.URL.Query().Get("login") },
			func(s string) string { return strings.Replace(s, "e\u0301", "\u00e9", 1) }), []row{
			{"composed", query("login=Andr" + url.QueryEscape("\u00e9")), 1},
			{"decomposed", query("login=Andr" + url.QueryEscape("e\u0301")), 1},
			{"its case is its own", query("login=andr" + url.QueryEscape("\u00e9")), 2},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			clients := make(map[string]int)
			keys := make(map[int]string)
			for _, row := range c.rows {
				key, err := c.key(request(row.change))
				if row.client <= 0 {
					refused(t, row.name, key, err, row.client == ambiguous)
					continue
				}
				if err != nil || len(key) != 22 {
					t.Errorf("%s: got %q, %v", row.name, key, err)
				}
				if client, ok := clients[key]; ok && client != row.client {
					t.Errorf("%s: client %d has the key of client %d", row.name, row.client, client)
				}
				if other, ok := keys[row.client]; ok && other != key {
					t.Errorf("%s: client %d has a second key", row.name, row.client)
				}
				clients[key], keys[row.client] = row.client, key
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

// refused fails unless the error is exactly one of ErrNoKey and ErrAmbiguous.
func refused(t *testing.T, name, key string, err error, ambiguous bool) {
	t.Helper()
	if key != "" || errors.Is(err, keyfunc.ErrAmbiguous) != ambiguous || errors.Is(err, keyfunc.ErrNoKey) == ambiguous {
		t.Errorf("%s: got %q, %v; ambiguous must be %v", name, key, err, ambiguous)
	}
}

// lenient reports whether a reader that splits at white space finds a bearer token. net/http admits
// no control character but the tab.
func lenient(s string) bool {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f }) {
		return false
	}
	fields := strings.Fields(s)
	return len(fields) > 1 && strings.EqualFold(fields[0], "bearer")
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
			missing := errors.Is(err, keyfunc.ErrNoKey)
			if got != "" || missing == errors.Is(err, keyfunc.ErrAmbiguous) {
				t.Fatalf("got %q, %v", got, err)
			}
			if missing && lenient(s) {
				t.Fatalf("%q has no key, but a lenient reader finds a token", s)
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
			// Never exempt a request in whose query a handler finds the parameter.
			read := strings.Trim((&url.URL{RawQuery: raw}).Query().Get("k"), " \t") != ""
			missing := errors.Is(err, keyfunc.ErrNoKey)
			if got != "" || missing == errors.Is(err, keyfunc.ErrAmbiguous) || missing && read {
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
			cookie, _ := r.Cookie("sid")
			read := cookie != nil && strings.Trim(cookie.Value, " \t") != ""
			missing := errors.Is(err, keyfunc.ErrNoKey)
			if got != "" || missing == errors.Is(err, keyfunc.ErrAmbiguous) || missing && read {
				t.Fatalf("got %q, %v", got, err)
			}
			return
		}
		if _, err := r.Cookie("sid"); err != nil || len(got) != 22 {
			t.Fatalf("%q: %q, but %v", lines, got, err)
		}
	})
}
