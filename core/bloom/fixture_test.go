package bloom_test

import (
	"github.com/headgate/headgate/internal/gatetest"
)

const (
	longTimeout  = gatetest.LongTimeout
	busyTimeout  = gatetest.BusyTimeout
	shortTimeout = gatetest.ShortTimeout
)

var (
	eachGate   = gatetest.Each
	memoryGate = gatetest.Memory
	redisGate  = gatetest.Redis
	newKey     = gatetest.Key
	newPolicy  = gatetest.Policy
	limited    = gatetest.Limited
	frozen     = gatetest.Frozen
	decide     = gatetest.Decide
	peek       = gatetest.Peek
	eventually = gatetest.Eventually
	long       = gatetest.Long
)
