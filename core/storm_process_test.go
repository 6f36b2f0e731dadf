//go:build unix

package core_test

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

// seat is a place in the storm, for one process after the other.
type seat struct {
	t       *testing.T
	addr    string
	limit   int
	cmd     *exec.Cmd
	in      io.WriteCloser
	ready   chan struct{}
	done    chan struct{}
	held    chan struct{} // told of grants
	beliefs []belief      // of the reader, until it is done
	hurt    int
}

func (s *seat) sit() {
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestStormer$")
	// The race detector lets a process wait for a second before it exits.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", stormAt+"="+s.addr)
	cmd.Stderr = s.t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Error(err)
		return
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Error(err)
		return
	}
	if err := cmd.Start(); err != nil {
		s.t.Error(err)
		return
	}
	s.cmd, s.in, s.ready, s.done = cmd, in, make(chan struct{}), make(chan struct{})
	go s.read(out, s.ready, s.done)
}

// start lets the process contend.
func (s *seat) start() {
	if _, err := fmt.Fprintln(s.in, s.limit); err != nil {
		s.t.Error(err)
	}
}

// read notes what the process believes. The last belief has no end if it was killed.
func (s *seat) read(out io.Reader, ready, done chan struct{}) {
	defer close(done)
	queued := int64(0)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		b := belief{queued: queued}
		switch line := lines.Text(); {
		case line == "ready":
			close(ready)
		case strings.HasPrefix(line, "wait "):
			_, _ = fmt.Sscanf(line, "wait %d", &queued) // half a line of who was killed
		case strings.HasPrefix(line, "hold "):
			queued = 0
			if _, err := fmt.Sscanf(line, "hold %d %d", &b.token, &b.from); err == nil {
				s.beliefs = append(s.beliefs, b)
				select {
				case s.held <- struct{}{}:
				default:
				}
			}
		case strings.HasPrefix(line, "free "):
			_, _ = fmt.Sscanf(line, "free %d", &s.beliefs[len(s.beliefs)-1].to) // half a line of who was killed
		case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "    "):
			s.t.Log(line)
		}
	}
}

// rise waits for the end of the process.
func (s *seat) rise(killed bool) {
	<-s.done
	if err := s.cmd.Wait(); err != nil && !killed {
		s.t.Error(err)
	}
	if n := len(s.beliefs); n > 0 && s.beliefs[n-1].to == 0 {
		if s.beliefs[n-1].to = time.Now().UnixNano(); !killed {
			s.t.Error("a process ended while it held")
		}
	}
}

// until waits for some time, and for every other call until the process has just been granted a
// slot. It says whether the storm goes on.
func (s *seat) until(over <-chan struct{}, atLeast time.Duration) bool {
	wait := time.NewTimer(atLeast + rand.N(atLeast))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-over:
		return false
	}
	if s.hurt++; s.hurt%2 == 0 {
		return true
	}
	select { // of before
	case <-s.held:
	default:
	}
	select {
	case <-s.held:
		return true
	case <-over:
		return false
	}
}

func (s *seat) killAgainAndAgain(over <-chan struct{}) {
	for s.until(over, stormLease) {
		_ = s.cmd.Process.Kill()
		s.rise(true)
		s.sit()
		<-s.ready
		s.start()
	}
}

func (s *seat) stopAgainAndAgain(over <-chan struct{}) {
	for s.until(over, stormLease) {
		_ = s.cmd.Process.Signal(syscall.SIGSTOP)
		<-time.After(stormLease + rand.N(stormLease))
		_ = s.cmd.Process.Signal(syscall.SIGCONT)
	}
}
