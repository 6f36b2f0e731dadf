package redistest

import (
	"math/rand/v2"
	"testing"
)

// Rand returns random numbers, whose seed a test that fails logs.
func Rand(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}
