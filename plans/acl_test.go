package plans_test

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/plans"
)

// The permissions in docs/redis.md are enough for overrides, and each one is needed.
func TestDocumentedPermissions(t *testing.T) {
	t.Parallel()
	page := gatetest.Must(os.ReadFile("../docs/redis.md"))(t)
	line := regexp.MustCompile(`(?m)^ACL SETUSER app (.*\+lpush.*)$`).FindStringSubmatch(string(page))
	if line == nil {
		t.Fatal("docs/redis.md has no line for plans")
	}
	rules := []any{"ACL", "SETUSER", "app", "on", ">secret", "resetchannels", "~hg:*"}
	for rule := range strings.FieldsSeq(line[1]) {
		rules = append(rules, rule)
	}
	s := redistest.Start(t)
	admin := s.Client(t)
	gatetest.NoError(t, admin.Do(t.Context(), rules...).Err())
	gatetest.NoError(t, admin.ConfigResetStat(t.Context()).Err())
	var events seen
	user := func(o *redis.Options) { o.Username, o.Password = "app", "secret" }
	a := redisBook(t, s.Client(t, user), &events, plans.Config{})
	b := redisBook(t, s.Client(t, user), &events, plans.Config{})
	expect(t, b, "acme", free)
	setOverride(t, a, "acme", plans.Override{Plan: "pro", Until: time.Now().Add(time.Hour)})
	await(t, "another plan", func() bool { return limit(t, b, "acme") == core.Algorithm(pro) })
	if was, err := a.DeleteOverride(t.Context(), "acme"); !was || err != nil {
		t.Error(was, err)
	}
	await(t, "the plan again, of which b hears from the changes", func() bool { return limit(t, b, "acme") == core.Algorithm(free) })
	if err := a.Refresh(t.Context(), "acme"); err != nil {
		t.Error(err)
	}
	for _, e := range events.take(plans.OpFollow, plans.OpOverride) {
		if errors.As(e.Err, new(redis.Error)) { // and not a machine that is slow
			t.Errorf("event %v", e)
		}
	}
	stats := gatetest.Must(admin.Info(t.Context(), "commandstats").Result())(t)
	for command := range strings.FieldsSeq(line[1]) {
		if !strings.Contains(stats, "cmdstat_"+command[1:]+":") {
			t.Errorf("%s is not used", command)
		}
	}
}
