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

// awaitStopped returns once the process is halted. kill(2) may return earlier,
// and the server would still answer a command sent in between. Only Linux
// reports the state without reaping the process; elsewhere awaitStopped returns
// immediately.
func awaitStopped(pid int) error {
	name := fmt.Sprintf("/proc/%d/stat", pid)
	for range 1000 {
		stat, err := os.ReadFile(name)
		if err != nil {
			return nil
		}
		// The state follows the command's name, which may hold any bytes.
		text := string(stat)
		state := strings.TrimSpace(text[strings.LastIndexByte(text, ')')+1:])
		if strings.HasPrefix(state, "T") {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("process %d does not stop", pid)
}
