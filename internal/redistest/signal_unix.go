//go:build unix

package redistest

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// awaitStopped returns once the process is halted, as kill(2) may return a
// moment before: a command sent in that moment would still be answered. Only
// Linux tells the state without reaping the process; elsewhere it returns at
// once.
func awaitStopped(pid int) error {
	name := fmt.Sprintf("/proc/%d/stat", pid)
	for range 1000 {
		stat, err := os.ReadFile(name)
		if err != nil {
			return nil
		}
		// The command's name comes before the state and may hold anything.
		text := string(stat)
		state := strings.TrimSpace(text[strings.LastIndexByte(text, ')')+1:])
		if strings.HasPrefix(state, "T") {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("process %d does not stop", pid)
}
