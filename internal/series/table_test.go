package series

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/gatetest"
)

// Many goroutines make the same values: each key has one, and all see it.
func TestTable(t *testing.T) {
	var table Table[int, *int]
	const keys, goroutines = 300, 8
	var seen [goroutines][keys]*int
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := range 4 * keys {
				k := i % keys
				v, ok := table.Get(k)
				if !ok {
					v = table.Make(k, func() *int { return &k })
				}
				if *v != k || seen[g][k] != nil && seen[g][k] != v {
					t.Errorf("key %d has the value %d", k, *v)
				}
				seen[g][k] = v
			}
		})
	}
	all.Wait()
	for k := range keys {
		for g := range goroutines {
			gatetest.Equal(t, seen[g][k], seen[0][k], "key %d has two values", k)
		}
	}
	if _, ok := table.Get(keys); ok {
		t.Error("a key that nobody made has a value")
	}
	if table.all != nil {
		t.Error("after many misses not all keys are read without the lock")
	}
}

func TestAllHasEverySeries(t *testing.T) {
	source := gatetest.Must(os.ReadFile("series.go"))(t)
	if n := strings.Count(string(source), "= &Series{"); n != len(All()) {
		t.Errorf("All has %d series of %d", len(All()), n)
	}
}
