//go:build !unix

package redistest

import "os"

// Without these signals there is no server to send them to either: neither
// Redis nor Valkey runs here, so these values only keep the package building.
var (
	sigStop = os.Kill
	sigCont = os.Interrupt
)

func awaitStopped(int) error { return nil }
