//go:build unix

package semaphore_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// worker runs one process of the storm after the other.
type worker struct {
	t         *testing.T
	addr      string
	limit     int
	cmd       *exec.Cmd
	in        io.WriteCloser
	ready     chan struct{}
	done      chan struct{}
	granted   chan struct{} // told of grants
	intervals []interval    // belongs to readOutput until done is closed
	faults    int
}

func (w *worker) spawn() {
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestStormProcess$")
	// With the race detector a process waits for a second before it exits.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", stormAddrEnv+"="+w.addr)
	cmd.Stderr = w.t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		w.t.Error(err)
		return
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Error(err)
		return
	}
	if err := cmd.Start(); err != nil {
		w.t.Error(err)
		return
	}
	w.cmd, w.in, w.ready, w.done = cmd, in, make(chan struct{}), make(chan struct{})
	go w.readOutput(out, w.ready, w.done)
}

// contend tells the process to start.
func (w *worker) contend() {
	if _, err := fmt.Fprintln(w.in, w.limit); err != nil {
		w.t.Error(err)
	}
}

// readOutput records the intervals of the process. The last one has no end if the process was
// killed.
func (w *worker) readOutput(out io.Reader, ready, done chan struct{}) {
	defer close(done)
	queued := int64(0)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		b := interval{queued: queued}
		switch line := lines.Text(); {
		case line == "ready":
			close(ready)
		case strings.HasPrefix(line, "wait "):
			_, _ = fmt.Sscanf(line, "wait %d", &queued) // a kill may cut this line short
		case strings.HasPrefix(line, "hold "):
			queued = 0
			if _, err := fmt.Sscanf(line, "hold %d %d", &b.token, &b.from); err == nil {
				w.intervals = append(w.intervals, b)
				select {
				case w.granted <- struct{}{}:
				default:
				}
			}
		case strings.HasPrefix(line, "free "):
			// A kill may cut this line short.
			_, _ = fmt.Sscanf(line, "free %d", &w.intervals[len(w.intervals)-1].to)
		case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "    "):
			w.t.Log(line)
		}
	}
}

// wait waits for the process to end.
func (w *worker) wait(killed bool) {
	<-w.done
	if err := w.cmd.Wait(); err != nil && !killed {
		w.t.Error(err)
	}
	if n := len(w.intervals); n > 0 && w.intervals[n-1].to == 0 {
		if w.intervals[n-1].to = time.Now().UnixNano(); !killed {
			w.t.Error("a process ended while it held a slot")
		}
	}
}

// nextFault waits for a random time and then, every other call, until the process has just been
// granted a slot. It reports whether the storm goes on.
func (w *worker) nextFault(over <-chan struct{}, atLeast time.Duration) bool {
	wait := time.NewTimer(atLeast + rand.N(atLeast))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-over:
		return false
	}
	if w.faults++; w.faults%2 == 0 {
		return true
	}
	select { // an earlier grant
	case <-w.granted:
	default:
	}
	select {
	case <-w.granted:
		return true
	case <-over:
		return false
	}
}

func (w *worker) killRepeatedly(over <-chan struct{}) {
	for w.nextFault(over, stormLease) {
		_ = w.cmd.Process.Kill()
		w.wait(true)
		w.spawn()
		<-w.ready
		w.contend()
	}
}

func (w *worker) stopRepeatedly(over <-chan struct{}) {
	for w.nextFault(over, stormLease) {
		_ = w.cmd.Process.Signal(syscall.SIGSTOP)
		<-time.After(stormLease + rand.N(stormLease))
		_ = w.cmd.Process.Signal(syscall.SIGCONT)
	}
}
