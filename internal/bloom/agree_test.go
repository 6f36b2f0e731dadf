package bloom_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/bloom"
	"github.com/headgate/headgate/internal/redistest"
)

// script is a filter in Redis on an injected clock.
type script struct {
	*redis.Script
	t      *testing.T
	client *redis.Client
	name   string
}

func (x *script) run(now int64, operation string, s bloom.Shape, parts []int64, args ...any) string {
	x.t.Helper()
	keys, argv := []string{x.name}, []any{operation, s.String(), len(parts)}
	for _, p := range parts {
		keys = append(keys, fmt.Sprint(x.name, ":e", p), fmt.Sprint(x.name, ":o", p))
		argv = append(argv, p)
	}
	argv = append(append(argv, args...), now)
	reply, err := x.Run(x.t.Context(), x.client, keys, argv...).Int64Slice()
	if err != nil {
		x.t.Fatalf("%v: %v", argv, err)
	}
	return fmt.Sprint(reply)
}

func TestScriptAgreesWithFilter(t *testing.T) {
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		rng := redistest.Rand(t)
		x := &script{
			redis.NewScript(redistest.Script("filter")), t, srv.Client(t), srv.Prefix + ":{f}:bf2",
		}
		redistest.ReplayUnderLua54(t, x.client)
		now := int64(1_763_700_000_123_456)
		model := new(bloom.Filter)
		shapes := []bloom.Shape{
			{Bits: 16, Blocks: 3, Parts: 3, Hashes: 2},
			{Bits: 64, Blocks: 1, Parts: 2, Hashes: 3, Window: 2_000_000},
			{Bits: 8, Blocks: 1, Parts: 1, Hashes: 1},
		}
		s := shapes[0]
		for i := range 3000 {
			switch rng.IntN(30) {
			case 0:
				now += rng.Int64N(3_000_000)
			case 1:
				now -= rng.Int64N(1_000_000)
			case 2:
				now += 100_000_000
			default:
				now += rng.Int64N(100_000)
			}
			var got, want string
			switch n := rng.IntN(60); {
			case n == 0:
				parts := []int64{0, 1, 2}
				got = x.run(now, "reset", s, nil)
				old, _ := model.Fits(s)
				if ttl := x.client.PTTL(t.Context(), x.name).Val(); old.Window > 0 && old.Parts > 0 && ttl <= 0 {
					t.Fatalf("between the steps of a reset the record has TTL %v", ttl)
				}
				got += x.run(now, "sweep", s, parts) + x.run(now, "swept", s, nil)
				want = fmt.Sprintf("[%d][0][0]", old.Parts)
				if n := x.client.Exists(t.Context(), x.name, x.name+":e0", x.name+":o0", x.name+":e2").Val(); n != 0 {
					t.Fatalf("%d keys are left", n)
				}
				model = new(bloom.Filter)
			case n < 3:
				s = shapes[rng.IntN(len(shapes))]
				continue
			case n < 8:
				part := rng.Int64N(s.Parts)
				got = x.run(now, "count", s, []int64{part})
				if other, ok := model.Fits(s); !ok {
					want = fmt.Sprintf("[-1 %v]", other)
				} else {
					current, before := model.Count(now, s, part)
					want = fmt.Sprint([]int64{current, before})
				}
			default:
				var items []bloom.Item
				var parts []int64
				var args []any
				for p := range s.Parts {
					parts = append(parts, p)
				}
				adds := rng.IntN(3)
				places := []byte(nil)
				for range 1 + rng.IntN(4) {
					it := s.Item(fmt.Sprint(rng.IntN(40)), adds == 0 || adds == 1 && rng.IntN(2) == 0)
					items = append(items, it)
					places = s.AppendPlaces(places, int(it.Part)+1, it)
					args = append(args, it.Block*s.Bits/8, (it.Block+1)*s.Bits/8-1)
				}
				args = append([]any{places}, args...)
				if got = x.run(now, "ask", s, parts, args...); strings.HasPrefix(got, "[4") {
					record := 0
					if slices.ContainsFunc(items, func(i bloom.Item) bool { return i.Add }) {
						record = 1
					}
					if began := x.run(now, "begin", s, parts, record); began != "[0]" {
						t.Fatalf("step %d: begin replied %s", i, began)
					}
					if record == 0 {
						got = fmt.Sprint(make([]int64, len(items)))
					} else {
						got = x.run(now, "ask", s, parts, args...)
					}
				}
				if other, ok := model.Fits(s); !ok {
					want = fmt.Sprintf("[-1 %v]", other)
				} else {
					want = fmt.Sprint(model.Ask(now, s, items))
				}
			}
			if got != want {
				t.Fatalf("step %d at %d, %v: redis %s, the model %s", i, now, s, got, want)
			}
		}
	})
}
