package server

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// ErrNoCounter is the error of StartCounted where valgrind is not installed.
var ErrNoCounter = errors.New("valgrind is not installed")

// StartCounted runs a server whose instructions are counted. It is some fifty times as slow as another.
func StartCounted(ctx context.Context) (*Server, error) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		return nil, ErrNoCounter
	}
	// What the server does of its own accord is no part of an operation.
	return startUnder(ctx, []string{"valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"},
		[]string{"--hz", "1", "--dynamic-hz", "no", "--activerehashing", "no"})
}

var counted = regexp.MustCompile(`(?m)^ *Th 1 +([0-9,]+)`)

// Instructions returns how many a server of StartCounted has executed on the thread that serves commands.
func (s *Server) Instructions(ctx context.Context) (int64, error) {
	out, err := exec.CommandContext(ctx, "callgrind_control", "-e", strconv.Itoa(s.cmd.Process.Pid)).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("ask callgrind: %w: %s", err, out)
	}
	found := counted.FindSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("ask callgrind: it answers %q", out)
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(string(found[1]), ",", ""), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("ask callgrind: %w", err)
	}
	return n, nil
}
