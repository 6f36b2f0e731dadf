package once_test

import "github.com/headgate/headgate/internal/gatetest"

const (
	longTimeout  = gatetest.LongTimeout
	busyTimeout  = gatetest.BusyTimeout
	shortTimeout = gatetest.ShortTimeout
)

var (
	memoryGate = gatetest.Memory
	redisGate  = gatetest.Redis
	newKey     = gatetest.Key
	limited    = gatetest.Limited
	decide     = gatetest.Decide
	eventually = gatetest.Eventually
)
