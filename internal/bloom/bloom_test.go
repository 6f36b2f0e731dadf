package bloom_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/bloom"
)

func shape(t testing.TB, items int64, rate float64, window int64) bloom.Shape {
	t.Helper()
	s, ok := bloom.NewShape(items, rate, window)
	if !ok {
		t.Fatalf("%d items at %v are too many", items, rate)
	}
	return s
}

func TestShape(t *testing.T) {
	for _, tt := range []struct {
		items  int64
		rate   float64
		window int64
		want   string
		bytes  int64
	}{
		{1, 0.5, 0, "2 1 1 0", 1},
		{1, 1e-9, 0, "45 1 22 0", 6},
		{1000, 0.01, 0, "9849 1 5 0", 1232}, // 7 bits of an item take 1199
		{1000, 0.02, 1_000_000, "9849 1 5 1000000", 2464},
		{1_000_000, 0.01, 0, "4924402 2 5 0", 1_231_102},
		{436_000_000, 0.01, 0, "8386872 512 5 0", 536_760_320},
	} {
		s := shape(t, tt.items, tt.rate, tt.window)
		if s.String() != tt.want || s.Bytes() != tt.bytes {
			t.Errorf("%d items at %v: %v, %d bytes", tt.items, tt.rate, s, s.Bytes())
		}
	}
	for _, tt := range []struct {
		items  int64
		rate   float64
		window int64
	}{{437_000_000, 0.01, 0}, {1 << 62, 0.5, 0}, {219_000_000, 0.02, 1_000_000}} {
		if s, ok := bloom.NewShape(tt.items, tt.rate, tt.window); ok {
			t.Errorf("%d items at %v have the shape %v", tt.items, tt.rate, s)
		}
	}
}

// Processes of all versions must agree where an item is.
func TestPositionsAreStable(t *testing.T) {
	small, large := bloom.Shape{Bits: 9586, Parts: 1, Hashes: 7}, bloom.Shape{Bits: 8_000_000, Parts: 171, Hashes: 10}
	for _, tt := range []struct {
		shape bloom.Shape
		item  string
		want  string
	}{
		{small, "a", "0 [5329 4303 3278 2255 1235 219 8794]"},
		{small, "https://example.com/", "0 [4749 4204 3660 3118 2579 2044 1514]"},
		{large, "a", "154 [5937801 1955299 5972798 1990299 6007803 2025311 6042824 2060343 6077869 2095403]"},
		{large, "\x00\xff", "59 [6235200 2205926 6176653 2147382 6118114 2088850 6059591 2030338 6001092 1971854]"},
	} {
		it := tt.shape.Item(tt.item, false)
		if got := fmt.Sprint(it.Part, tt.shape.Positions(nil, it)); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.item, got, tt.want)
		}
	}
}

func TestPositionsLieInTheShape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, _ := bloom.NewShape(
			rapid.Int64Range(1, 400_000_000).Draw(t, "items"), rapid.Float64Range(0.01, 0.5).Draw(t, "rate"), 0)
		it := s.Item(rapid.String().Draw(t, "item"), true)
		if it.Part < 0 || it.Part >= s.Parts {
			t.Fatalf("part %d of %d", it.Part, s.Parts)
		}
		all := s.Positions(nil, it)
		if len(all) != s.Hashes || slices.Min(all) < 0 || slices.Max(all) >= s.Bits {
			t.Fatalf("%v: positions %v", s, all)
		}
	})
}

func ask(s bloom.Shape, add bool, items ...string) (all []bloom.Item) {
	for _, item := range items {
		all = append(all, s.Item(item, add))
	}
	return all
}

func TestFilterKeepsItsRate(t *testing.T) {
	for _, tt := range []struct {
		items int64
		rate  float64
	}{{100, 0.1}, {20_000, 0.01}, {50_000, 0.001}, {300_000, 0.25}} {
		s := shape(t, tt.items, tt.rate, 0)
		var f bloom.Filter
		for i := range tt.items {
			f.Ask(1, s, ask(s, true, fmt.Sprint("in ", i)))
		}
		for i := range tt.items {
			if f.Ask(1, s, ask(s, false, fmt.Sprint("in ", i)))[0] != bloom.Present {
				t.Fatalf("%d of %d is missing", i, tt.items)
			}
		}
		const others = 200_000
		found := int64(0)
		for i := range others {
			found += f.Ask(1, s, ask(s, false, fmt.Sprint("out ", i)))[0]
		}
		rate := float64(found) / others
		if rate > tt.rate*1.15 || rate < tt.rate*0.8 {
			t.Errorf("%d items at %v: %v", tt.items, tt.rate, rate)
		}
		var items, estimate float64
		for part := range s.Parts {
			set, _ := f.Count(1, s, part)
			items += s.Items(set)
			estimate += s.Rate(set) / float64(s.Parts)
		}
		if n := float64(tt.items); items < n*0.9 || items > n*1.1 {
			t.Errorf("%v items are estimated to be %v", n, items)
		}
		if estimate > tt.rate*1.15 || estimate < tt.rate*0.8 {
			t.Errorf("rate %v is estimated as %v", tt.rate, estimate)
		}
	}
}

func TestItemsAgeOut(t *testing.T) {
	const window = 1000
	s := shape(t, 100, 0.001, window)
	rapid.Check(t, func(t *rapid.T) {
		var f bloom.Filter
		now := rapid.Int64Range(1_000_000, 1_000_000+2*window).Draw(t, "start")
		added := make(map[string]int64)
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
			now += rapid.Int64Range(0, window).Draw(t, "later")
			item := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "item"))
			add := rapid.Bool().Draw(t, "add")
			found := f.Ask(now, s, ask(s, add, item))[0] == bloom.Present
			last, was := added[item]
			switch {
			case was && now-last <= window && !found:
				t.Fatalf("step %d: %s is gone after %d", i, item, now-last)
			case (!was || now-last >= 2*window) && found:
				t.Fatalf("step %d: %s is found after %d", i, item, now-last)
			}
			if add {
				added[item] = now
			}
		}
	})
}
