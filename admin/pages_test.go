package admin_test

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
)

func TestDebug(t *testing.T) {
	var live admin.Live
	g := gatetest.Memory(t, core.Config{Observe: live.Observe})
	api := limited(t, "api", core.PerMinute(2))
	for range 4 {
		g.Decide(t.Context(), core.Charge{Policy: api, Key: newKey(t, "acme", "bob")})
	}
	s := newSite(t, admin.Config{Gate: g, Policies: []*core.Policy{api}, Live: &live, Semaphores: []*semaphore.Semaphore{newSemaphore(t, g, "s")}})
	fmt.Println(s.get(""))
	fmt.Println(s.get("subject", "key", "acme/bob"))
}
