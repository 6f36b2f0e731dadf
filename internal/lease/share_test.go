package lease

import (
	"os"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
)

// Two tenants of which one offers a hundred times the load of the other share the slots by their
// shares, whatever the number of slots and however long each holds one, and leave no slot unused.
func TestSlotTimeFollowsShares(t *testing.T) {
	check := func(t *testing.T, s *simulation, lasts int64) {
		t.Helper()
		jain, utilization := s.run(lasts)
		small, big := s.tenants[0], s.tenants[1]
		t.Logf("%2d slots, shares %d:%d, holds of %d:%d s, random %5v: Jain's index %.4f, utilization %.4f, "+
			"slot-seconds %d:%d", s.slots, small.share, big.share, small.hold/second, big.hold/second, s.random,
			jain, utilization, small.served/second, big.served/second)
		if jain < 0.95 || utilization < 0.99 {
			t.Error("want an index of 0.95 and a utilization of 0.99 at least")
		}
	}
	each := func(slots []int64, shares, holds [][2]int64, f func(*simulation)) {
		for _, n := range slots {
			for _, share := range shares {
				for _, hold := range holds {
					f(&simulation{slots: n, tenants: []*tenant{
						{name: "small", share: share[0], hold: hold[0] * second, workers: int(2 * n)},
						{name: "big", share: share[1], hold: hold[1] * second, workers: int(200 * n)},
					}})
				}
			}
		}
	}
	slots, holds := []int64{1, 2, 4, 10}, [][2]int64{{1, 1}, {10, 1}, {1, 10}}
	long := os.Getenv("HEADGATE_TEST_LONG") != ""
	t.Run("model", func(t *testing.T) {
		each(slots, [][2]int64{{1, 1}, {1, 3}, {3, 1}}, holds, func(s *simulation) {
			for _, s.random = range []bool{false, true} {
				for _, c := range s.tenants {
					c.served, c.held = 0, 0
				}
				s.onModel()
				check(t, s, 1000*second)
			}
		})
	})
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		slots, holds, lasts := slots, holds, int64(150*second)
		if !srv.Real {
			return // miniredis delivers messages later
		}
		if long {
			lasts = 3000 * second
		}
		each(slots, [][2]int64{{1, 1}, {1, 3}, {3, 1}}, holds, func(s *simulation) {
			s.onScript(t, srv)
			check(t, s, lasts)
		})
	})
}
