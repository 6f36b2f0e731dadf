package admin_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var (
	newKey    = gatetest.Key
	newPolicy = gatetest.Policy
	limited   = gatetest.Limited
	decide    = gatetest.Decide
)

// events are what Config.Observe was told.
type events struct {
	mu  sync.Mutex
	all []admin.Event
}

func (e *events) observe(_ context.Context, one core.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, *one.(*admin.Event))
}

// last returns the last event.
func (e *events) last() admin.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.all) == 0 {
		return admin.Event{}
	}
	return e.all[len(e.all)-1]
}

// site is a page under a prefix.
type site struct {
	t      *testing.T
	server *httptest.Server
	events *events
}

// newSite serves a page. The header Operator names who asks, and Role what that may do.
func newSite(t *testing.T, cfg admin.Config) *site {
	t.Helper()
	s := &site{t: t, events: new(events)}
	may := func(role string) func(*http.Request) (string, error) {
		return func(r *http.Request) (string, error) {
			if !strings.Contains(r.Header.Get("Role"), role) {
				return "", errors.New("the secret reason")
			}
			return r.Header.Get("Operator"), nil
		}
	}
	if cfg.Read == nil {
		cfg.Read = may("read")
	}
	if cfg.Write == nil {
		cfg.Write = may("write")
	}
	cfg.Observe = s.events.observe
	page := core.Must(admin.New(cfg))
	mux := http.NewServeMux()
	mux.Handle("/ops/", http.StripPrefix("/ops", page))
	s.server = httptest.NewServer(mux)
	t.Cleanup(func() { s.server.CloseClientConnections(); s.server.Close() })
	return s
}

// ask sends a request and returns the status, the headers and the body.
func (s *site) ask(method, path string, form url.Values, headers ...string) (int, http.Header, string) {
	s.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r := core.Must(http.NewRequestWithContext(s.t.Context(), method, s.server.URL+"/ops/"+path, body))
	r.Header.Set("Operator", "kim")
	r.Header.Set("Role", "read write")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp := gatetest.Must(client.Do(r))(s.t)
	defer func() { _ = resp.Body.Close() }()
	text := gatetest.Must(io.ReadAll(resp.Body))(s.t)
	return resp.StatusCode, resp.Header, string(text)
}

// get returns a page.
func (s *site) get(path string, query ...string) string {
	s.t.Helper()
	status, _, body := s.ask("GET", path+encode(query), nil)
	gatetest.Need(s.t, status, http.StatusOK, "%s: status (%s)", path, body)
	return body
}

// expect sends a request, and expects a status and words in the text of the answer.
func (s *site) expect(method, path string, form url.Values, status int, words ...string) {
	s.t.Helper()
	got, _, body := s.ask(method, path, form)
	gatetest.Equal(s.t, got, status, "%s of %s %v: %s", method, path, form, squeeze(body))
	for _, word := range words {
		gatetest.Contains(s.t, squeeze(body), word, "%s of %s %v", method, path, form)
	}
}

func encode(query []string) string {
	if len(query) == 0 {
		return ""
	}
	values := make(url.Values)
	for i := 0; i < len(query); i += 2 {
		values.Set(query[i], query[i+1])
	}
	return "?" + values.Encode()
}

func newSemaphore(t *testing.T, g *core.Gate, name string) *semaphore.Semaphore {
	return core.Must(semaphore.New(g, semaphore.Config{Name: name, TTL: 6 * time.Second}))
}

// statingGate is gatetest.Redis with a Gate that states its policies, as that of a program.
func statingGate(t *testing.T, client redis.UniversalClient, cfg core.Config) *core.Gate {
	t.Helper()
	cfg.Timeout = gatetest.LongTimeout
	g := core.Must(core.NewRedis(client, cfg))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), gatetest.LongTimeout)
		defer cancel()
		_ = g.Close(ctx)
	})
	return g
}
