package bloom_test

import "github.com/headgate/headgate/internal/gatetest"

const (
	longTimeout  = gatetest.LongTimeout
	busyTimeout  = gatetest.BusyTimeout
	shortTimeout = gatetest.ShortTimeout
)

var (
	eachGate   = gatetest.Each
	memoryGate = gatetest.Memory
	redisGate  = gatetest.Redis
	long       = gatetest.Long
)
