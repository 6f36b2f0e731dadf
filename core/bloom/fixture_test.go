package bloom_test

import (
	"testing"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const busyTimeout = gatetest.BusyTimeout

var (
	eachGate   = gatetest.Each
	memoryGate = gatetest.Memory
	redisGate  = gatetest.Redis
	noError    = gatetest.NoError
	worked     = gatetest.Worked
)
