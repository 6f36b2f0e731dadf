package lab

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

//go:embed preload/skewclock.c
var skewSource []byte

// HasCompiler reports whether SetClock can work here: it needs a C compiler.
func HasCompiler() bool {
	_, err := exec.LookPath("cc")
	return err == nil
}

// preload returns the environment of a server whose clock can be stepped.
func (l *Lab) preload() ([]string, error) {
	source, library := filepath.Join(l.dir, "skewclock.c"), filepath.Join(l.dir, "skewclock.so")
	if err := os.WriteFile(source, skewSource, 0o600); err != nil {
		return nil, err
	}
	out, err := exec.Command("cc", "-O2", "-shared", "-fPIC", "-o", library, source).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("cc: %w: %s", err, out)
	}
	l.skew = filepath.Join(l.dir, "skew")
	if err := l.SetClock(0); err != nil {
		return nil, err
	}
	return []string{"LD_PRELOAD=" + library, "SKEW_FILE=" + l.skew}, nil
}

// SetClock sets by how much the clock of the server is ahead of that of the system.
func (l *Lab) SetClock(ahead time.Duration) error {
	// A server that reads half a number would see a third time.
	next := l.skew + ".next"
	err := os.WriteFile(next, strconv.AppendInt(nil, ahead.Microseconds(), 10), 0o600)
	if err != nil {
		return err
	}
	return os.Rename(next, l.skew)
}
