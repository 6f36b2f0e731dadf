package admin_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

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
	decide(t, g, core.Charge{Policy: api, Key: newKey(t, "acme")})
	if page := squeeze(s.get("")); !strings.Contains(page, server.Addr+" answers") {
		t.Error(page)
	}
	server.Stop()
	gatetest.Eventually(t, "the circuit is open", func() bool {
		return strings.Contains(squeeze(s.get("subject", "key", "acme")), "Redis does not answer, and the failure modes decide") &&
			strings.Contains(squeeze(s.get("")), server.Addr+" does not answer since")
	})
	page := squeeze(s.get("subject", "key", "acme"))
	for _, want := range []string{"Redis does not answer, and api is closed meanwhile.", "the slots of streams:"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q: %s", want, page)
		}
	}
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
	if page := squeeze(s.get("subject", "key", "acme")); !strings.Contains(page, "Allow it: ACL SETUSER app +zrange") {
		t.Error(page)
	}
	if page := squeeze(s.get("blocked", "policy", "bans")); !strings.Contains(page, "Allow it: ACL SETUSER app +scan") {
		t.Error(page)
	}
}

// pages returns the text of the first page and of the page of acme.
func (s *site) pages() map[string]string {
	s.t.Helper()
	return map[string]string{"overview": squeeze(s.get("")), "subject": squeeze(s.get("subject", "key", "acme"))}
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
				"subject": {"Not known: ", "the failure modes decide", "This process denies the next request meanwhile: " +
					"Redis does not answer, and api is closed meanwhile.", "5 per 1 h Not known"},
			}},
		{"it is dead, and the policy is Open", gatetest.ShortTimeout,
			core.PolicyConfig{Name: "api", Algorithm: core.PerHour(5), OnFailure: core.FailOpen}, nil,
			func(_ *testing.T, s *redistest.Server) { s.Kill() },
			map[string][]string{
				"overview": {"Not known: "},
				"subject":  {"Not known: ", "No failure mode of this process denies the next request meanwhile."},
			}},
		{"it is slow, and the policy is Local", gatetest.ShortTimeout, api, nil,
			func(_ *testing.T, s *redistest.Server) { s.Stop() },
			map[string][]string{
				"overview": {"Not known: Redis does not answer"},
				"subject":  {"Not known: Redis does not answer", "counted by this process alone"},
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
			for name, page := range s.pages() {
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
