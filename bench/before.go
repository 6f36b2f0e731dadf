package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headgate/headgate/bench/internal/report"
)

// before is the benchmarks of an older revision.
type before struct {
	program  string
	parts    []string
	revision string
}

// newBefore builds the benchmarks of a checkout into a folder.
func newBefore(ctx context.Context, checkout, folder string) (*before, error) {
	b := &before{program: filepath.Join(folder, "bench")}
	dir := filepath.Join(checkout, "bench")
	if _, err := output(ctx, "go", "-C", dir, "build", "-o", b.program, "."); err != nil {
		return nil, err
	}
	revision, err := output(ctx, "git", "-C", checkout, "log", "-1", "--format=%h of %as")
	if err != nil {
		return nil, err
	}
	b.revision = strings.TrimSpace(revision)
	// An older build may lack a part.
	for _, name := range names() {
		if _, err := os.Stat(filepath.Join(dir, "internal", folderOf(name))); err == nil {
			b.parts = append(b.parts, name)
		}
	}
	return b, nil
}

// folderOf returns the folder below internal that has the code of a part.
func folderOf(part string) string {
	if part == "cluster" {
		return "decisions"
	}
	return part
}

// run measures a part, if there is one of that name.
func (b *before) run(ctx context.Context, part string, rounds int, progress io.Writer) ([]report.Table, error) {
	if !slices.Contains(b.parts, part) {
		return nil, nil
	}
	fmt.Fprintf(progress, "the same at %s\n", b.revision)
	page, err := output(ctx, b.program, "-only", part, "-rounds", fmt.Sprint(rounds))
	if err != nil {
		return nil, err
	}
	return report.Read(strings.NewReader(page))
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	var out, told bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Stdout, cmd.Stderr = &out, &told
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", cmd, err, told.String())
	}
	return out.String(), nil
}
