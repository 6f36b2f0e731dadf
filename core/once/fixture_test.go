package once_test

import (
	"testing"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const busyTimeout = gatetest.BusyTimeout

var (
	memoryGate = gatetest.Memory
	redisGate  = gatetest.Redis
	newKey     = gatetest.Key
	limited    = gatetest.Limited
	decide     = gatetest.Decide
	eventually = gatetest.Eventually
	noError    = gatetest.NoError
	worked     = gatetest.Worked
)
