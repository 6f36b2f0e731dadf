package algorithm

import (
	"testing"

	"pgregory.net/rapid"
)

// What Spend decides, it decides, keeps and tells as Run and Read would, whatever was done to the state before, by whatever limits.
func TestSpendIsRun(t *testing.T) {
	spent := 0
	rapid.Check(t, func(t *rapid.T) {
		limits := []*TokenBucket{anyBucket(t), anyBucket(t)}
		if rapid.Bool().Draw(t, "queue") {
			leaky := *limits[0]
			leaky.queue = !leaky.frozen
			limits[0] = &leaky
		}
		s, now := State(nil), start
		for range rapid.IntRange(1, 30).Draw(t, "operations") {
			b := limits[rapid.IntRange(0, 5).Draw(t, "limit")/5]
			if s == nil {
				s = b.NewState()
			}
			now += someTime(t, b)
			if rapid.IntRange(0, 20).Draw(t, "step") == 0 {
				now -= 2 * someTime(t, b)
			}
			n := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, b.burst+1)).Draw(t, "n")
			switch rapid.IntRange(0, 12).Draw(t, "operation") {
			case 0:
				force(b, s, now, n)
				continue
			case 1:
				if receipt, ok := try(b, s, now, n); ok {
					give(b, s, now+someTime(t, b), n, receipt)
				}
				continue
			case 2:
				Run(now, Reserve, someTime(t, b), []Charge{{State: s, Limit: b, Cost: b.Cost(n)}}, nil)
				continue
			}
			op, charged, other := Decide, Cost{}, clone(s)
			if rapid.IntRange(0, 4).Draw(t, "look") == 0 {
				op = Peek
			}
			var got Reading
			fits, ok := b.Spend(s, now, n, op == Peek, &got)
			if !ok && s.(*bucket).Value() != other.(*bucket).Value() {
				t.Fatalf("%+v became %+v of what is left to Run", other, s)
			}
			reply, _ := Run(now, op, 0, []Charge{{State: other, Limit: b, Cost: b.Cost(n)}}, nil)
			if !ok {
				s = other
				continue
			}
			spent++
			if reply[0] == 0 && op == Decide {
				charged = b.Cost(n)
			}
			if want := b.Read(reply[1:], charged, n); fits != (reply[0] == 0) || got != want {
				t.Fatalf("%d of %+v on %+v at %d: %v and %+v instead of %v and %+v", n, b, s, now, fits, got, reply[0] == 0, want)
			}
			if s.Value() != other.Value() || s.Expires() != other.Expires() || s.Spent(now) != other.Spent(now) {
				t.Fatalf("%d of %+v left %+v instead of %+v", n, b, s, other)
			}
		}
	})
	if spent == 0 {
		t.Error("Spend decided nothing")
	}
}
