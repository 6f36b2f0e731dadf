package main

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
)

// outcome is what a part measured.
type outcome struct {
	Tables []report.Table
	Panels []report.Panel
	Wrong  string // answers of this project
}

// measureApart measures a part in a process of its own, so that no part sees the heap, the connections
// and the caches that another left.
func measureApart(ctx context.Context, p part, rounds int, quick bool, progress io.Writer) (outcome, error) {
	var o outcome
	program, err := os.Executable()
	if err != nil {
		return o, fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return o, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	name := filepath.Join(dir, "outcome")
	args := append(arguments(p.name, rounds, quick), "-outcome", name)
	// What contenders write to standard output is no part of the page.
	if err := execute(ctx, "", progress, progress, program, args...); err != nil {
		return o, fmt.Errorf("measure %s: %w", p.name, err)
	}
	f, err := os.Open(name)
	if err != nil {
		return o, fmt.Errorf("read what %s measured: %w", p.name, err)
	}
	defer func() { _ = f.Close() }()
	if err := gob.NewDecoder(f).Decode(&o); err != nil {
		return o, fmt.Errorf("read what %s measured: %w", p.name, err)
	}
	return o, nil
}

// measureHere measures a part in this process, and writes the outcome into a file.
func measureHere(ctx context.Context, p part, plan measure.Plan, file string) error {
	tables, panels, wrong := p.run(ctx, plan)
	if tables == nil && wrong != nil {
		return wrong
	}
	o := outcome{Tables: tables, Panels: panels}
	if wrong != nil {
		o.Wrong = wrong.Error()
	}
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("write what was measured: %w", err)
	}
	if err := errors.Join(gob.NewEncoder(f).Encode(o), f.Close()); err != nil {
		return fmt.Errorf("write what was measured: %w", err)
	}
	return nil
}

// arguments are those with which a program of this revision or an older one measures a part.
func arguments(part string, rounds int, quick bool) []string {
	args := []string{"-only", part, "-rounds", fmt.Sprint(rounds)}
	if quick {
		args = append(args, "-smoke")
	}
	return args
}

// collect has garbage collected as in a process that keeps 40 MiB, and not 4 MiB. In one that keeps as
// little as a part does, the collector runs so often that allocations cost several times as much.
const collect = "GOGC=1000"

// execute runs a command in a folder, or in this one if that is empty. What stands in another folder is
// outside this checkout's workspace.
func execute(ctx context.Context, folder string, out, told io.Writer, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), collect)
	if folder != "" {
		cmd.Env = append(cmd.Env, "GOWORK=off")
	}
	cmd.Stdout, cmd.Stderr = out, told
	// It has servers to stop.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", cmd, err)
	}
	return nil
}
