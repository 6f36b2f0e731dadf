package keyfunc_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/keyfunc"
)

// Rows with the same client must have the same key, and rows with different clients different ones.
func TestCredentials(t *testing.T) {
	authorization := func(lines ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header["Authorization"] = lines }
	}
	cookie := func(lines ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header["Cookie"] = lines }
	}
	query := func(raw string) func(*http.Request) {
		return func(r *http.Request) { r.URL.RawQuery = raw }
	}
	login := func(r *http.Request) string { return r.URL.Query().Get("login") }
	compose := func(s string) string { return strings.Replace(s, "e\u0301", "\u00e9", 1) }
	type row struct {
		name   string
		change func(*http.Request)
		client string // or noKey, or ambiguous
	}
	for _, c := range []struct {
		name string
		key  keyfunc.Func
		rows []row
	}{
		{"bearer token", keyfunc.BearerToken(), []row{
			{"token", authorization("Bearer abc.DEF-_~+/=="), "ann"},
			{"lower case", authorization("bearer abc.DEF-_~+/=="), "ann"},
			{"spaces", authorization("BEARER   abc.DEF-_~+/== "), "ann"},
			{"another token", authorization("Bearer abc.def-_~+/=="), "bob"},
			{"1 MiB", authorization("Bearer " + strings.Repeat("a", 1<<20)), "cat"},
			{"missing", authorization(), noKey},
			{"another scheme", authorization("Basic abc"), noKey},
			{"scheme with a prefix", authorization("xBearer abc"), noKey},
			{"scheme with a suffix", authorization("Bearerx abc"), noKey},
			{"scheme and a space", authorization("Bearer "), noKey},
			{"scheme alone", authorization("Bearer"), noKey},
			{"part of the scheme", authorization("Bear"), noKey},
			{"padding alone", authorization("Bearer =="), ambiguous},
			{"two tokens", authorization("Bearer abc def"), ambiguous},
			{"padding inside", authorization("Bearer a=b"), ambiguous},
			{"colon inside", authorization("Bearer sk:abc"), ambiguous},
			{"tab", authorization("Bearer\tabc"), ambiguous},
			{"no-break space", authorization("Bearer\u00a0abc"), ambiguous},
			{"colon", authorization("Bearer: abc"), ambiguous},
			{"two lines", authorization("Bearer abc", "Bearer abc"), ambiguous},
			{"two schemes", authorization("Basic abc", "Bearer abc"), ambiguous},
		}},
		{"cookie", keyfunc.Must(keyfunc.Cookie("sid")), []row{
			{"cookie", cookie("a=1; sid=v1; b=2"), "ann"},
			{"quoted", cookie(`sid="v1"`), "ann"},
			{"another value", cookie("sid=v2"), "bob"},
			{"longer name", cookie("xsid=v1"), noKey},
			{"name in upper case", cookie("SID=v1"), noKey},
			{"empty", cookie("sid="), noKey},
			{"missing", cookie(), noKey},
			{"blank", cookie(`sid=" "`), ambiguous},
			{"twice", cookie("sid=v1; sid=v1"), ambiguous},
			{"in two lines", cookie("sid=v1", "sid=v2"), ambiguous},
			{"empty and not", cookie("sid=; sid=v1"), ambiguous},
		}},
		{"query", keyfunc.Must(keyfunc.Query("api_key")), []row{
			{"parameter", query("a=1&api_key=v1"), "ann"},
			{"escaped", query("api%5Fkey=%76%31"), "ann"},
			{"another value", query("api_key=v2"), "bob"},
			{"empty", query("api_key="), noKey},
			{"no value", query("api_key"), noKey},
			{"missing", query(""), noKey},
			{"blank", query("api_key=+%09"), ambiguous},
			{"twice", query("api_key=v1&api_key=v1"), ambiguous},
			{"empty and not", query("api_key=&api_key=v1"), ambiguous},
			{"malformed", query("api_key=v1&%zz"), ambiguous},
			{"malformed, another parameter", query("api_key=v1&other=%zz"), ambiguous},
			{"malformed, no parameter", query("other=%zz"), ambiguous},
			{"semicolon", query("a=1;api_key=v1"), ambiguous},
		}},
		{"name", keyfunc.Must(keyfunc.Name(login, nil)), []row{
			{"name", query("login=bob"), "bob"},
			{"case and white space", query("login=+%42ob%09"), "bob"},
			{"another name", query("login=alice"), "alice"},
			{"blank", query("login=+"), noKey},
			{"missing", query(""), noKey},
		}},
		{"name with normalize", keyfunc.Must(keyfunc.Name(login, compose)), []row{
			{"composed", query("login=Andr" + url.QueryEscape("\u00e9")), "Andr\u00e9"},
			{"decomposed", query("login=Andr" + url.QueryEscape("e\u0301")), "Andr\u00e9"},
			{"case is kept", query("login=andr" + url.QueryEscape("\u00e9")), "andr\u00e9"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			clients, keys := make(map[string]string), make(map[string]string)
			for _, row := range c.rows {
				key, err := c.key(request(row.change))
				if row.client == noKey || row.client == ambiguous {
					if outcome := outcomeOf(key, err); outcome != row.client {
						t.Errorf("%s: got %s, want %s", row.name, outcome, row.client)
					}
					continue
				}
				if err != nil || len(key) != 22 {
					t.Errorf("%s: got %q, %v; want a hash", row.name, key, err)
				}
				if client, ok := clients[key]; ok && client != row.client {
					t.Errorf("%s: %s has the key of %s", row.name, row.client, client)
				}
				if other, ok := keys[row.client]; ok && other != key {
					t.Errorf("%s: %s has a second key", row.name, row.client)
				}
				clients[key], keys[row.client] = row.client, key
			}
		})
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
		with := func(value string) (string, error) {
			return key(request(func(r *http.Request) { r.Header["Authorization"] = []string{value} }))
		}
		got, err := with(s)
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
		if same, err := with("Bearer " + fields[1]); same != got || err != nil {
			t.Fatalf("%q and its canonical form: %q and %q", s, got, same)
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, s := range []string{"k=v", "%6b=v", "k=v&k=w", "k", "k=%zz", ";k=v", "a=b&k=%20"} {
		f.Add(s)
	}
	key := keyfunc.Must(keyfunc.Query("k"))
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := key(request(func(r *http.Request) { r.URL.RawQuery = raw }))
		if err != nil {
			// Never exempt a request in whose query a handler finds the parameter.
			read := (&url.URL{RawQuery: raw}).Query().Get("k") != ""
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
	key := keyfunc.Must(keyfunc.Cookie("sid"))
	f.Fuzz(func(t *testing.T, lines string) {
		r := request(func(r *http.Request) { r.Header["Cookie"] = strings.Split(lines, "\n") })
		got, err := key(r)
		if err != nil {
			cookie, _ := r.Cookie("sid")
			read := cookie != nil && cookie.Value != ""
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
