package redistest_test

import (
	"testing"

	"github.com/headgate/headgate/internal/redistest"
)

func TestFailover(t *testing.T) {
	t.Parallel()
	f := redistest.StartFailover(t, 1)
	client := f.Client(t)
	if err := client.Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	f.Replicated(t)
	f.Nodes[0].Kill()
	eventually(t, func() error { return client.Set(t.Context(), "other", 1, 0).Err() })
	if v, err := f.Nodes[1].Client(t).Get(t.Context(), "key").Result(); err != nil || v != "value" {
		t.Errorf("GET of the replica = %q, %v", v, err)
	}
}
