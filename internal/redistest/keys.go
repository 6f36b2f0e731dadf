package redistest

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Keys returns the names that match a pattern, except those of slots that nobody holds: Redis keeps
// their last tokens for some minutes.
func Keys(t testing.TB, client redis.Cmdable, pattern string) []string {
	t.Helper()
	names, err := client.Keys(t.Context(), pattern).Result()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return strings.HasSuffix(name, ":m") && strings.Contains(client.Get(t.Context(), name).Val(), " 0 0 - ")
	})
}
