package gatetest

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// Hanging is a file that nobody else can open: it hangs, as it does on a network file system whose
// server is gone.
type Hanging struct {
	t    *testing.T
	file *os.File
}

// Hang makes a file hang until the test ends, or Release is called. The kernel opens it after 45 s all
// the same. The test is skipped where the file system has no leases.
func Hang(t *testing.T, path string) *Hanging {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	h := &Hanging{t, file}
	t.Cleanup(func() { file.Close() })     // which ends the lease
	Eventually(t, "a lease", func() bool { // somebody may read the file now
		_, errno := h.control(syscall.F_SETLEASE, syscall.F_WRLCK)
		if errno != 0 && errno != syscall.EAGAIN {
			t.Skipf("the file system has no leases: %v", errno)
		}
		return errno == 0
	})
	return h
}

func (h *Hanging) control(command, arg uintptr) (uintptr, syscall.Errno) {
	value, _, errno := syscall.Syscall(syscall.SYS_FCNTL, h.file.Fd(), command, arg)
	return value, errno
}

// Write appends to the file.
func (h *Hanging) Write(text string) {
	h.t.Helper()
	if _, err := h.file.WriteString(text); err != nil {
		h.t.Fatal(err)
	}
}

// AwaitOpen waits until somebody hangs, who wants to open the file.
func (h *Hanging) AwaitOpen() {
	h.t.Helper()
	Eventually(h.t, "an open that hangs", func() bool {
		lease, errno := h.control(syscall.F_GETLEASE, 0)
		return errno != 0 || lease != syscall.F_WRLCK // what an open makes of it
	})
}

// Release ends the opens that hang.
func (h *Hanging) Release() {
	h.t.Helper()
	if _, errno := h.control(syscall.F_SETLEASE, syscall.F_UNLCK); errno != 0 {
		h.t.Error(errno)
	}
}

// Returns fails the test if a call waits for a file that hangs.
func (h *Hanging) Returns(what string, call func()) {
	h.t.Helper()
	returned := make(chan struct{})
	go func() {
		call()
		close(returned)
	}()
	select {
	case <-returned:
	case <-time.After(LongTimeout): // the kernel waits for longer
		h.t.Fatalf("%s waits for the file", what)
	}
}
