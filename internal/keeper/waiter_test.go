package keeper

import (
	"testing"

	"github.com/headgate/headgate/internal/breaker"
)

// Wake makes every waiter ask again, without a grant.
func TestWake(t *testing.T) {
	k := New(Config{Tasks: breaker.NewTasks()})
	waiters := []*Waiter{k.Wait("s", "a"), k.Wait("s", "b")}
	k.Wake()
	for _, w := range waiters {
		<-w.Woken
		if m, closing := k.Heard(w); m.Token != 0 || closing {
			t.Errorf("heard %v, %v", m, closing)
		}
	}
}
