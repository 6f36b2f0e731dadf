package core_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// A release goes to the user below its floor, and the next one to a user that has used less of the
// slot than the one with more and older requests.
func TestSlotsFollowShares(t *testing.T) {
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		s := semaphore(t, g, core.SemaphoreConfig{TTL: time.Minute, MaxWaiters: 1000})
		acme := newKey(t, "acme")
		enqueue := func(user string, share, floor int64) (id string) {
			id, err := s.Enqueue(t.Context(), core.SlotRequest{Levels: []core.Level{
				{Key: acme, Limit: 1},
				{Key: newKey(t, "acme", user), Limit: 1, Share: share, Floor: floor},
			}})
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		leave := func(id string) {
			if err := s.Leave(t.Context(), acme, id); err != nil {
				t.Fatal(err)
			}
		}
		var ids []string
		for range 40 {
			ids = append(ids, enqueue("many", 0, 0))
		}
		for range 10 {
			ids = append(ids, enqueue("few", 3, 0))
		}
		floor := enqueue("floor", 0, 1)
		got := ""
		for range 4 {
			holders, _, err := s.Holders(t.Context(), acme)
			if err != nil || len(holders) != 1 {
				t.Fatal(holders, err)
			}
			got += strings.TrimPrefix(holders[0].Key, "{acme}:") + " "
			leave(holders[0].ID)
		}
		if !strings.HasPrefix(got, "many floor few ") {
			t.Errorf("the slot went to %s", got)
		}
		for _, id := range append(ids, floor) {
			leave(id)
		}
	})
}

func TestSlotSharesAreChecked(t *testing.T) {
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		s := semaphore(t, g, core.SemaphoreConfig{})
		acme, user := newKey(t, "acme"), newKey(t, "acme", "user")
		for want, levels := range map[string][]core.Level{
			"level 1 has Share -1":   {{Key: acme, Limit: 1}, {Key: user, Limit: 1, Share: -1}},
			"level 1 has Share 1001": {{Key: acme, Limit: 1}, {Key: user, Limit: 1, Share: core.MaxShare + 1}},
			"level 1 has Floor -1":   {{Key: acme, Limit: 1}, {Key: user, Limit: 1, Floor: -1}},
			"level 1 has Floor 2":    {{Key: acme, Limit: 2}, {Key: user, Limit: 1, Floor: 2}},
			"level 0 has Share 2":    {{Key: acme, Limit: 1, Share: 2}},
			"but no level above":     {{Key: acme, Limit: 1, Floor: 1}, {Key: user, Limit: 1}},
		} {
			l, err := s.Acquire(t.Context(), core.SlotRequest{Levels: levels})
			if l != nil || !errors.Is(err, core.ErrSlotRequest) || !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%v, want an error with %q", err, want)
			}
		}
		if holders, waiting, err := s.Holders(t.Context(), acme); len(holders)+waiting > 0 || err != nil {
			t.Errorf("%v, %d wait, %v", holders, waiting, err)
		}
		release(t, acquire(t, s, core.Level{Key: acme, Limit: 2, Weight: 2},
			core.Level{Key: user, Limit: 2, Weight: 2, Share: core.MaxShare, Floor: 2}))
	})
}
