//go:build !unix

package redistest

import "os"

// Neither Redis nor Valkey runs on these systems, so no server gets these
// signals. The values only keep the package building.
var (
	sigStop = os.Kill
	sigCont = os.Interrupt
)

func awaitStopped(int) error { return nil }
