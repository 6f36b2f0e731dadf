package measure

import "runtime/debug"

// HeapMiB is the heap at which garbage is collected after GrowHeap. leastHeapMiB is what the runtime
// has for it at 100 percent.
const HeapMiB, leastHeapMiB = 40, 4

// GrowHeap has garbage collected as in a process with a heap of HeapMiB, until restore is called. In
// one of a few MiB the collector runs so often that allocations cost several times as much.
func GrowHeap() (restore func()) {
	percent := debug.SetGCPercent(HeapMiB / leastHeapMiB * 100)
	return func() { debug.SetGCPercent(percent) }
}
