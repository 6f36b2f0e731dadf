package gatetest

import "testing"

// Allocs returns the allocations of one call of f: the least of a hundred, because the race detector
// drops what pools keep, now and then, and other tests allocate meanwhile.
func Allocs(f func()) float64 {
	least := testing.AllocsPerRun(1, f)
	for range 100 {
		least = min(least, testing.AllocsPerRun(1, f))
	}
	return least
}
