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
	// The order that has failed may be sent again.
	if status, _, body := s.ask("POST", "act", form); status != http.StatusOK || !strings.Contains(body, "has spent nothing") {
		t.Error(status, squeeze(body))
	}
}

// The page names the right that the user of Redis lacks.
func TestMissingRight(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rules := []any{"ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-zrange", "-scan"}
	if err := server.Client(t).Do(t.Context(), rules...).Err(); err != nil {
		t.Fatal(err)
	}
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
