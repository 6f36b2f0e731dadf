package admin_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/plans"
)

func TestNewTellsEveryFault(t *testing.T) {
	_, err := admin.New(admin.Config{Policies: []*core.Policy{nil}, Origins: []string{"example.com"}})
	for _, want := range []string{
		"Config.Read is nil: it must say who may read", "Config.Gate is missing", "Config.Policies[0] is missing",
		"Config.Origins[0]",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

// busySite is a page of a Gate that has denied something to a key.
func busySite(t *testing.T, key core.Key, change func(*admin.Config)) *site {
	t.Helper()
	live := new(admin.Live)
	g := gatetest.Memory(t, core.Config{Observe: live.Observe})
	api := limited(t, "api", core.PerHour(3))
	bans := limited(t, "bans", core.Block{Strikes: 2, Within: time.Hour, For: time.Hour})
	for range 5 {
		decide(t, g, core.Charge{Policy: api, Key: key})
	}
	decide(t, g, core.Charge{Policy: bans, Key: key, Cost: 2})
	cfg := admin.Config{
		Gate: g, Policies: []*core.Policy{api, bans}, Semaphores: []*semaphore.Semaphore{newSemaphore(t, g, "streams")},
		Live: live,
	}
	if change != nil {
		change(&cfg)
	}
	return newSite(t, cfg)
}

// Only who may read reads, and only who may write changes something. No reason is shown.
func TestAccess(t *testing.T) {
	s := busySite(t, newKey(t, "acme"), nil)
	reset := url.Values{"action": {"reset"}, "policy": {"api"}, "key": {"acme"}, "id": {"1"}}
	reads := []string{"", "subject?key=acme", "blocked?policy=bans", "style.css", "page.js", "nowhere"}
	check := func(status int, h http.Header, body string, want int, what string) {
		t.Helper()
		if status != want || strings.Contains(body, "secret") {
			t.Errorf("%s: status %d, want %d: %s", what, status, want, body)
		}
		if h.Get("Cache-Control") != "no-store" || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") ||
			strings.Contains(h.Get("Content-Security-Policy"), "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: headers %v", what, h)
		}
	}
	for _, path := range reads {
		status, h, body := s.ask("GET", path, nil, "Role", "none")
		check(status, h, body, http.StatusForbidden, "GET "+path+" without the right")
		status, h, body = s.ask("GET", path, nil, "Operator", "")
		check(status, h, body, http.StatusForbidden, "GET "+path+" without a name")
	}
	for _, role := range []string{"none", "read", "write"} {
		status, h, body := s.ask("GET", "confirm?action=reset&policy=api&key=acme", nil, "Role", role)
		check(status, h, body, http.StatusForbidden, "confirm as "+role)
		status, h, body = s.ask("POST", "act", reset, "Role", role)
		check(status, h, body, http.StatusForbidden, "act as "+role)
	}
	for _, foreign := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"},
	} {
		status, h, body := s.ask("POST", "act", reset, foreign...)
		check(status, h, body, http.StatusForbidden, fmt.Sprint("act from ", foreign))
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		status, h, body := s.ask(method, "", nil)
		check(status, h, body, http.StatusMethodNotAllowed, method+" /")
	}
	status, h, body := s.ask("GET", "act?"+reset.Encode(), nil)
	check(status, h, body, http.StatusMethodNotAllowed, "GET act")
	status, h, body = s.ask("GET", "nowhere", nil)
	check(status, h, body, http.StatusNotFound, "GET nowhere")
	if e := s.events.last(); e.Op != 0 {
		t.Errorf("an order was carried out: %+v", e)
	}
	gatetest.Contains(t, s.get("subject", "key", "acme"), "<b>3</b> of 3 requests", "the limit was reset")
	status, h, body = s.ask("POST", "act", reset, "Sec-Fetch-Site", "same-origin")
	check(status, h, body, http.StatusOK, "act from here")
	if e := s.events.last(); e.Op != admin.OpReset || e.Operator != "kim" || e.Err != nil {
		t.Errorf("%+v", e)
	}
}

// Without Config.Write nobody changes anything, and the page offers no form for it.
func TestReadOnly(t *testing.T) {
	refuse := func(*http.Request) (string, error) { return "", errors.New("nobody") }
	s := busySite(t, newKey(t, "acme"), func(cfg *admin.Config) { cfg.Write = refuse })
	page := s.get("subject", "key", "acme")
	if strings.Contains(page, "confirm") || !strings.Contains(page, "read only") {
		t.Error(page)
	}
	live := new(admin.Live)
	g := gatetest.Memory(t, core.Config{Observe: live.Observe})
	a := core.Must(admin.New(admin.Config{Gate: g, Read: func(*http.Request) (string, error) { return "kim", nil }}))
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest("POST", "http://localhost/act", strings.NewReader("action=reset")))
	gatetest.Equal(t, w.Code, http.StatusForbidden, "status")
	w = httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/", nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "has no Live") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

// harm returns what of a page a browser would act on that no page has itself.
func harm(page string) (found []string) {
	quoted := regexp.MustCompile(`"[^"]*"`)
	name := regexp.MustCompile(`^</?([a-z0-9]+)`)
	for _, tag := range regexp.MustCompile(`<[a-zA-Z/][^>]*>`).FindAllString(page, -1) {
		bare := quoted.ReplaceAllString(tag, "")
		parts := name.FindStringSubmatch(bare)
		if parts == nil || strings.Contains(" img iframe object embed base style ", " "+parts[1]+" ") ||
			regexp.MustCompile(`(?i)\s(on\w+|style)\s*=|'`).MatchString(bare) ||
			regexp.MustCompile(`(?i)(href|src|action)="\s*(javascript|data|//)`).MatchString(tag) ||
			parts[1] == "script" && tag != `<script src="page.js" defer>` && tag != "</script>" {
			found = append(found, tag)
		}
	}
	return found
}

// What a key holds does no harm, on any page, and leads to the key itself.
func TestHostileKeys(t *testing.T) {
	for _, bad := range []string{
		"<img src=x>", `<a onclick="x">`, `<p style="x">`, "<script>x", `<a href="javascript:x">`, "<a href='x'>",
	} {
		if len(harm(bad)) == 0 {
			t.Fatalf("%s is not found", bad)
		}
	}
	for _, part := range []string{
		"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "javascript:alert(1)", "'; DROP", "{{.Operator}}",
		"a\r\nSet-Cookie: x=y", "a&key=b#c", "\u202eevil", "a/b", "..", "\x00\xff",
	} {
		key := newKey(t, part, "<script>")
		s := busySite(t, key, nil)
		for _, path := range []string{"", "blocked?policy=bans"} {
			page := s.get(path)
			links := regexp.MustCompile(`href="(subject\?key=[^"]*)"`).FindAllStringSubmatch(page, -1)
			if len(links) == 0 {
				t.Fatalf("%q: no link on %q", part, path)
			}
			subject := s.get(html.UnescapeString(links[0][1]))
			gatetest.Contains(t, subject, "<b>3</b> of 3 requests", "%q: %q leads to another key", part, links[0][1])
			form := formOf(t, subject, "reset")
			confirm := s.get("confirm?" + form.Encode())
			for what, text := range map[string]string{"page": page, "subject": subject, "confirm": confirm} {
				if found := harm(text); len(found) > 0 {
					t.Errorf("%q: the %s holds %q", part, what, found)
				}
			}
		}
		status, _, page := s.ask("GET", "subject?"+url.Values{"key": {"%zz" + part}}.Encode(), nil)
		if status != http.StatusBadRequest || len(harm(page)) > 0 {
			t.Errorf("%q: status %d: %s", part, status, page)
		}
	}
}

// formOf returns the fields of the form with an action.
func formOf(t *testing.T, page, action string) url.Values {
	t.Helper()
	for _, form := range regexp.MustCompile(`(?s)<form.*?</form>`).FindAllString(page, -1) {
		values := make(url.Values)
		for _, input := range regexp.MustCompile(`<input[^>]*>`).FindAllString(form, -1) {
			name := regexp.MustCompile(` name="([^"]*)"`).FindStringSubmatch(input)
			value := regexp.MustCompile(` value="([^"]*)"`).FindStringSubmatch(input)
			if name != nil && value != nil {
				values.Set(name[1], html.UnescapeString(value[1]))
			}
		}
		if selected := regexp.MustCompile(`(?s)<select[^>]*name="([^"]*)">.*?<option(?: value="([^"]*)")?>?`).FindStringSubmatch(form); selected != nil {
			values.Set(selected[1], selected[2])
		}
		if values.Get("action") == action {
			return values
		}
	}
	t.Fatalf("the page has no form to %s:\n%s", action, page)
	return nil
}

// The first page shows what is denied, to whom, and by whom something was changed.
func TestOverview(t *testing.T) {
	t.Parallel()
	live := new(admin.Live)
	g := gatetest.Memory(t, core.Config{Observe: live.Observe})
	api := limited(t, "api", core.PerHour(3))
	shadow := newPolicy(t, core.PolicyConfig{Name: "shadow", Algorithm: core.PerHour(1), Shadow: true})
	streams := newSemaphore(t, g, "streams")
	s := newSite(t, admin.Config{
		Gate: g, Policies: []*core.Policy{api, shadow}, Semaphores: []*semaphore.Semaphore{streams}, Live: live,
		Name: func(k core.Key) string {
			if k.Parts()[0] == "h4sh" {
				return "Globex Inc."
			}
			return ""
		},
	})
	if page := s.get(""); !strings.Contains(page, "Nobody has asked") || !strings.Contains(page, "Nobody was refused") {
		t.Error(page)
	}
	for range 10 {
		decide(t, g, core.Charge{Policy: api, Key: newKey(t, "acme", "bob")}, core.Charge{Policy: shadow, Key: newKey(t, "acme")})
	}
	for range 5 {
		decide(t, g, core.Charge{Policy: api, Key: newKey(t, "h4sh")})
	}
	hold := semaphore.Request{Caps: []semaphore.Cap{{Key: newKey(t, "acme"), Limit: 1}}}
	l := gatetest.Must(streams.Acquire(t.Context(), hold))(t)
	defer func() { _ = l.Release(t.Context()) }()
	if _, err := streams.Acquire(t.Context(), hold); !errors.Is(err, semaphore.ErrFull) {
		t.Fatal(err)
	}
	gatetest.Eventually(t, "the second is over", func() bool {
		return strings.Contains(squeeze(s.get("")), "api 0 9 6")
	})
	page := squeeze(s.get(""))
	for _, want := range []string{
		"streams 0 1 1", // Denied/s, Denied, Admitted
		"acme streams 1×", "shadow shadow: would deny 0 9 1",
		"acme/bob api 7×", "Globex Inc. api 2×", "alone has seen",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Index(page, "acme/bob api") > strings.Index(page, "Globex Inc. api") || strings.Contains(page, "acme shadow") {
		t.Error(page)
	}
	gatetest.Contains(t, squeeze(s.get("subject", "key", "acme/bob")), "When a slot becomes free is not known.", "got")
}

// squeeze returns the text of a page.
func squeeze(page string) string {
	text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " ")
	return strings.Join(strings.Fields(html.UnescapeString(text)), " ")
}

// The page is at its prefix, with and without the slash, and its links are relative.
func TestPrefix(t *testing.T) {
	s := busySite(t, newKey(t, "acme"), nil)
	for _, page := range []string{s.get(""), s.get("subject", "key", "acme")} {
		for _, link := range regexp.MustCompile(`(?:href|src|action)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			if u, err := url.Parse(link[1]); err != nil || u.IsAbs() || strings.HasPrefix(u.Path, "/") || u.Host != "" {
				t.Errorf("link %q", link[1])
			}
		}
	}
	read := func(*http.Request) (string, error) { return "kim", nil }
	a := core.Must(admin.New(admin.Config{Gate: gatetest.Memory(t, core.Config{}), Read: read}))
	w := httptest.NewRecorder()
	http.StripPrefix("/ops", a).ServeHTTP(w, localRequest("GET", "/ops"))
	if w.Code != http.StatusTemporaryRedirect || w.Header().Get("Location") != "ops/" {
		t.Error(w.Code, w.Header())
	}
}

// localRequest returns a request whose RequestURI is a path, as a server reads it.
func localRequest(method, path string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	r.Host = "localhost"
	return r
}

// The page answers to the names that its configuration has, so that a foreign site whose name leads
// to its address reads nothing.
func TestHosts(t *testing.T) {
	read := func(*http.Request) (string, error) { return "kim", nil }
	page := func(hosts, origins []string) http.Handler {
		a := core.Must(admin.New(admin.Config{
			Gate: gatetest.Memory(t, core.Config{}), Read: read, Write: read, Hosts: hosts, Origins: origins,
		}))
		return a
	}
	given, all := page([]string{"Ops.Example.com"}, []string{"https://outer.example:8443"}), page([]string{"*"}, nil)
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:8081": 200, "page.localhost": 200, "127.0.0.1:8081": 200, "10.1.2.3": 200,
		"[::1]:8081": 200, "[::1]": 200, "ops.example.com": 200, "ops.example.com.:443": 200, "outer.example": 200,
		"evil.example": 421, "evil.example:8081": 421, "localhost.evil.example": 421, "notlocalhost": 421,
		"127.0.0.1.evil.example": 421, "sub.ops.example.com": 421, "": 421, "*": 421,
	} {
		for path, method := range map[string]string{"/": "GET", "/subject?key=acme": "GET", "/style.css": "GET", "/nowhere": "GET"} {
			r := httptest.NewRequest(method, path, nil)
			r.Host = host
			w := httptest.NewRecorder()
			given.ServeHTTP(w, r)
			if ok := w.Code == 200 || path == "/nowhere" && w.Code == 404; ok != (want == 200) || want == 421 && w.Code != 421 {
				t.Errorf("%s of %q: status %d, want %d", path, host, w.Code, want)
			}
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		if all.ServeHTTP(w, r); w.Code != 200 {
			t.Errorf("a page of all hosts answers %d to %q", w.Code, host)
		}
	}
	_, err := admin.New(admin.Config{
		Gate: gatetest.Memory(t, core.Config{}), Read: read, Hosts: []string{"", "https://ops.example.com", "ops:80", "*.a"},
	})
	for i := range 4 {
		if want := fmt.Sprintf("Config.Hosts[%d]", i); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %s", err, want)
		}
	}
}

// Where many keys are denied alike, the page names none. Who stands out is named beside them.
func TestNoKeyStandsOut(t *testing.T) {
	const crowd, besides = "Many keys were refused, and no key stands out.", "Many other keys were refused, and none of them stands out."
	for _, tt := range []struct {
		name        string
		keys, times int
		loud        int // denials of one key more
		rows        int
		want        string
	}{
		{"10,000 keys twice each", 10_000, 2, 0, 0, crowd},
		{"one key besides", 10_000, 2, 5000, 1, besides},
		{"few keys", 5, 2, 0, 5, ""},
		{"more keys than rows", 20, 2, 0, 12, "8 more keys were refused."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			live := new(admin.Live)
			g := gatetest.Memory(t, core.Config{Observe: live.Observe})
			api := limited(t, "api", core.DenyAll{})
			for range tt.times {
				for i := range tt.keys {
					decide(t, g, core.Charge{Policy: api, Key: newKey(t, fmt.Sprint("key", i))})
				}
			}
			for range tt.loud {
				decide(t, g, core.Charge{Policy: api, Key: newKey(t, "loud")})
			}
			page := newSite(t, admin.Config{Gate: g, Policies: []*core.Policy{api}, Live: live}).get("")
			gatetest.Equal(t, strings.Count(page, `id="refused-`), tt.rows, "rows")
			text := squeeze(page)
			for _, one := range []string{crowd, besides} {
				gatetest.Equal(t, strings.Contains(text, one), one == tt.want, "%q: %s", one, text)
			}
			if !strings.Contains(text, tt.want) || tt.loud > 0 && !strings.Contains(text, "loud api") {
				t.Error(text)
			}
		})
	}
}

// Each button and field of a page has a name of its own for those who hear it.
func TestControlsHaveNames(t *testing.T) {
	g := gatetest.Memory(t, core.Config{})
	month := newPolicy(t, core.PolicyConfig{Name: "month", Raisable: true, Algorithm: core.Calendar{Limit: 100, Every: core.PeriodMonth, In: time.UTC}})
	week := newPolicy(t, core.PolicyConfig{Name: "week", Raisable: true, Algorithm: core.Calendar{Limit: 100, Every: core.PeriodWeek, In: time.UTC}})
	bans := limited(t, "bans", core.Block{Strikes: 2, Within: time.Hour, For: time.Hour})
	streams := newSemaphore(t, g, "streams")
	for _, user := range []string{"bob", "ann"} {
		l := gatetest.Must(streams.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{
			{Key: newKey(t, "acme"), Limit: 9}, {Key: newKey(t, "acme", user), Limit: 9},
		}}))(t)
		defer func() { _ = l.Release(context.Background()) }()
	}
	s := newSite(t, admin.Config{
		Gate: g, Policies: []*core.Policy{month, week, bans}, Semaphores: []*semaphore.Semaphore{streams},
	})
	page := s.get("subject", "key", "acme")
	names := make(map[string]bool)
	for _, control := range regexp.MustCompile(`<(?:button|summary|select|input)[^>]*>`).FindAllString(page, -1) {
		if strings.Contains(control, `type="hidden"`) || strings.Contains(control, `id="key"`) || control == "<button>" {
			continue // the form that looks a key up
		}
		label := regexp.MustCompile(`aria-label="([^"]+)"`).FindStringSubmatch(control)
		if label == nil || names[label[1]] {
			t.Errorf("%s has no name of its own", control)
			continue
		}
		names[html.UnescapeString(label[1])] = true
	}
	for _, want := range []string{
		"Give back of month", "Give back of week", "Reset month", "Block under bans", "Raise month",
		"Evict acme/bob, held for 0 s", "Evict acme/ann, held for 0 s",
	} {
		if !names[want] {
			t.Errorf("no control is named %q: %v", want, names)
		}
	}
}

// While Redis stands still the page says so, says who decides, and changes nothing unseen.
func TestOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	live := new(admin.Live)
	g := gatetest.Redis(t, server.Client(t), core.Config{Timeout: gatetest.ShortTimeout, Observe: live.Observe})
	api := newPolicy(t, core.PolicyConfig{Name: "api", Algorithm: core.PerHour(5), OnFailure: core.FailClosed})
	s := newSite(t, admin.Config{
		Gate: g, Policies: []*core.Policy{api}, Semaphores: []*semaphore.Semaphore{newSemaphore(t, g, "streams")}, Live: live,
	})
	gatetest.Eventually(t, "the server answers", func() bool {
		decide(t, g, core.Charge{Policy: api, Key: newKey(t, "acme")})
		page := s.get("")
		return strings.Contains(squeeze(page), server.Addr+" answers") && strings.Contains(page, `"lamp good"`)
	})
	server.Stop()
	gatetest.Eventually(t, "the circuit is open", func() bool {
		return strings.Contains(squeeze(s.get("subject", "key", "acme")), "Redis does not answer, and the failure modes decide") &&
			strings.Contains(squeeze(s.get("")), server.Addr+" does not answer since")
	})
	page := squeeze(s.get("subject", "key", "acme"))
	gatetest.Contains(t, page, "the slots of streams:", "the page is")
	form := map[string][]string{"action": {"reset"}, "key": {"acme"}, "policy": {"api"}, "id": {"1"}}
	status, _, body := s.ask("POST", "act", form)
	if e := s.events.last(); status != http.StatusBadGateway || e.Err == nil || !strings.Contains(body, "This has failed") {
		t.Error(status, e, squeeze(body))
	}
	server.Continue()
	gatetest.ViaRedis(t, g, core.Charge{Policy: api, Key: newKey(t, "acme")})
	// On a busy machine Redis may not answer in time again.
	gatetest.Eventually(t, "the order that has failed is sent again", func() bool {
		status, _, body := s.ask("POST", "act", form)
		return status == http.StatusOK && strings.Contains(body, "has spent nothing")
	})
}

// Slots that a failure mode refuses are refused, and decided without Redis.
func TestSlotsRefusedInAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	live := new(admin.Live)
	g := gatetest.Redis(t, server.Client(t), core.Config{Timeout: gatetest.ShortTimeout, Observe: live.Observe})
	closed := core.Must(semaphore.New(g, semaphore.Config{Name: "streams", TTL: 6 * time.Second, OnFailure: core.FailClosed}))
	s := newSite(t, admin.Config{Gate: g, Semaphores: []*semaphore.Semaphore{closed}, Live: live})
	server.Kill()
	for range 3 {
		gatetest.Fails(t, gatetest.Err(closed.Acquire(t.Context(), semaphore.Request{
			Caps: []semaphore.Cap{{Key: newKey(t, "acme"), Limit: 1}},
		})), "a slot is granted")
	}
	page := ""
	gatetest.Eventually(t, "three slots were denied, and none admitted", func() bool {
		page = squeeze(s.get(""))
		return strings.Contains(page, "streams 0 3 0")
	})
	gatetest.Contains(t, page, "acme streams 3×", "the page is")
	gatetest.Contains(t, page, "Decided without Redis 3", "the page is")
}

// What is typed for a key stays with it when the row of another key comes.
func TestIDsAreOfKeys(t *testing.T) {
	s := newService(t, gatetest.Memory(t, core.Config{}), plans.Config{})
	ids := func() map[string]string {
		all := make(map[string]string)
		form := regexp.MustCompile(`name="key" value="([^"]+)"><input type="hidden" name="policy" value="api">.* id="([^"]+)-give"`)
		page := s.get("subject", "key", "acme/bob")
		gatetest.Contains(t, page, `id="plan-acme-name"`, "got")
		for _, found := range form.FindAllStringSubmatch(page, -1) {
			all[found[1]] = found[2]
		}
		return all
	}
	decide(t, s.gate, core.Charge{Policy: s.api, Key: newKey(t, "acme", "bob")})
	before := ids()
	decide(t, s.gate, core.Charge{Policy: s.api, Key: newKey(t, "acme")})
	after := ids()
	gatetest.Equal(t, len(after), len(before)+1, "rows: %v", after)
	gatetest.Equal(t, after["acme/bob"], before["acme/bob"], "the id")
}

// The page names the right that the user of Redis lacks.
func TestMissingRight(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rules := []any{"ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-zrange", "-scan"}
	gatetest.NoError(t, server.Client(t).Do(t.Context(), rules...).Err())
	client := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
	g := gatetest.Redis(t, client, core.Config{})
	streams := newSemaphore(t, g, "streams")
	bans := limited(t, "bans", core.Block{Strikes: 2, Within: time.Hour, For: time.Hour})
	for range 2 {
		l, err := streams.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{{Key: newKey(t, "acme"), Limit: 9}}})
		if err != nil {
			t.Skip("this server needs zrange to take a slot: ", err)
		}
		defer func() { _ = l.Release(t.Context()) }()
	}
	s := newSite(t, admin.Config{Gate: g, Policies: []*core.Policy{bans}, Semaphores: []*semaphore.Semaphore{streams}})
	// A script's error names the right since Redis 7.2.
	gatetest.Contains(t, squeeze(s.get("subject", "key", "acme")), "the slots of streams: ", "got")
	gatetest.Contains(t, squeeze(s.get("blocked", "policy", "bans")), " +scan", "got")
}

// calming are what a page may only say if Redis has answered.
var calming = []string{
	"The next request passes", "given no policies", "No policy counts", " answers", "Denied until",
}

// What Redis did not answer is not known, and no page says that all is well.
func TestUnknownIsNotWell(t *testing.T) {
	t.Parallel()
	api := core.PolicyConfig{Name: "api", Algorithm: core.PerHour(5)}
	for _, tt := range []struct {
		name    string
		timeout time.Duration // long where Redis answers
		policy  core.PolicyConfig
		client  func(o *redis.Options)
		fail    func(t *testing.T, s *redistest.Server)
		want    map[string][]string
	}{
		{"it refuses the password", gatetest.LongTimeout, api,
			func(o *redis.Options) { o.Password = "old" },
			func(t *testing.T, s *redistest.Server) {
				gatetest.NoError(t, s.Client(t).ConfigSet(t.Context(), "requirepass", "new").Err())
			},
			map[string][]string{
				"overview": {"Not known: Redis does not accept the user name or password",
					"Requests that Redis must decide fail with an error meanwhile", "Requests that failed with an error in the last minute: 1."},
				"subject": {"Not known: Redis does not accept the user name or password", "fail with an error meanwhile",
					"Limits Not known: Redis does not accept"},
			}},
		{"it wants a password", gatetest.LongTimeout, api, nil,
			func(t *testing.T, s *redistest.Server) {
				gatetest.NoError(t, s.Client(t).ConfigSet(t.Context(), "requirepass", "new").Err())
			},
			map[string][]string{
				"overview": {"Not known: Redis wants a password, and the client has none"},
				"subject":  {"Not known: Redis wants a password, and the client has none"},
			}},
		{"it is dead, and the policy is Closed", gatetest.ShortTimeout,
			core.PolicyConfig{Name: "api", Algorithm: core.PerHour(5), OnFailure: core.FailClosed}, nil,
			func(_ *testing.T, s *redistest.Server) { s.Kill() },
			map[string][]string{
				"overview": {"Not known: ", "The failure modes of the policies decide meanwhile"},
				"subject":  {"Not known: ", "the failure modes decide", "Limits Not known: "},
			}},
		{"it is slow, and the policy is Local", gatetest.ShortTimeout, api, nil,
			func(_ *testing.T, s *redistest.Server) { s.Stop() },
			map[string][]string{
				"overview": {"Not known: Redis does not answer"},
				"subject":  {"Limits Not known: Redis does not answer"},
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := server.Client(t, func(o *redis.Options) {
				if tt.client != nil {
					tt.client(o)
				}
			})
			tt.fail(t, server)
			live := new(admin.Live)
			g := gatetest.Redis(t, client, core.Config{Timeout: tt.timeout, Observe: live.Observe})
			p, key := newPolicy(t, tt.policy), newKey(t, "acme")
			s := newSite(t, admin.Config{
				Gate: g, Policies: []*core.Policy{p}, Semaphores: []*semaphore.Semaphore{newSemaphore(t, g, "streams")}, Live: live,
			})
			_, _ = g.Decide(t.Context(), core.Charge{Policy: p, Key: key})
			for name, html := range map[string]string{"overview": s.get(""), "subject": s.get("subject", "key", "acme")} {
				page := squeeze(html)
				if strings.Contains(html, `"lamp good"`) || strings.Contains(html, `"verdict passes"`) {
					t.Errorf("something of the %s is green: %s", name, html)
				}
				for _, want := range tt.want[name] {
					if name == "overview" && strings.Contains(want, "in the last minute") {
						gatetest.Eventually(t, "the second is over", func() bool { return strings.Contains(squeeze(s.get("")), want) })
					} else if !strings.Contains(page, want) {
						t.Errorf("the %s lacks %q: %s", name, want, page)
					}
				}
				for _, calm := range calming {
					if strings.Contains(page, calm) {
						t.Errorf("the %s says %q: %s", name, calm, page)
					}
				}
			}
		})
	}
}
