package semaphore_test

import (
	"testing"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

const (
	longTimeout  = gatetest.LongTimeout
	busyTimeout  = gatetest.BusyTimeout
	shortTimeout = gatetest.ShortTimeout
)

var (
	eachGate     = gatetest.Each
	memoryGate   = gatetest.Memory
	redisGate    = gatetest.Redis
	newKey       = gatetest.Key
	newPolicy    = gatetest.Policy
	limited      = gatetest.Limited
	frozen       = gatetest.Frozen
	decide       = gatetest.Decide
	peek         = gatetest.Peek
	eventually   = gatetest.Eventually
	long         = gatetest.Long
	show         = gatetest.Show
	onNodes      = gatetest.OnNodes
	viaRedis     = gatetest.ViaRedis
	onScripts    = gatetest.OnScripts
	fail         = gatetest.Fail
	noError      = gatetest.NoError
	worked       = gatetest.Worked
	others       = gatetest.Others
	queue        = gatetest.Queue
	newSemaphore = gatetest.Semaphore
	acquire      = gatetest.Acquire
	enqueue      = gatetest.Enqueue
	release      = gatetest.Release
	heldFor      = gatetest.HeldFor
	wantUsed     = gatetest.WantUsed
	settle       = gatetest.Settle
	isOp         = gatetest.IsOp
	do           = gatetest.Do
)

func TestMain(m *testing.M) { redistest.Main(m) }
