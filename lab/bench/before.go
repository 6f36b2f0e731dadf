package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headgate/headgate/lab/bench/internal/report"
)

// before is the benchmarks of an older revision.
type before struct {
	dir      string // of its benchmarks, where it runs
	program  string
	parts    []string
	smoke    bool // it makes smoke runs
	revision string
}

// newBefore builds the benchmarks of a checkout into a folder.
func newBefore(ctx context.Context, checkout, folder string) (*before, error) {
	b := &before{dir: filepath.Join(checkout, "lab", "bench"), program: filepath.Join(folder, "bench")}
	if _, err := os.Stat(b.dir); err != nil {
		b.dir = filepath.Join(checkout, "bench") // where it was at first
	}
	if _, err := b.output(ctx, "go", "build", "-o", b.program, "."); err != nil {
		return nil, err
	}
	revision, err := b.output(ctx, "git", "log", "-1", "--format=%h of %as")
	if err != nil {
		return nil, err
	}
	b.revision = strings.TrimSpace(revision)
	// An older build may lack a part.
	for _, name := range names() {
		if _, err := os.Stat(filepath.Join(b.dir, "internal", folderOf(name))); err == nil {
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

// run measures a part, if there is one of that name. With tables, its error is of wrong answers
// only.
func (b *before) run(ctx context.Context, part string, rounds int, progress io.Writer) ([]report.Table, error) {
	if !slices.Contains(b.parts, part) {
		return nil, nil
	}
	fmt.Fprintf(progress, "the same at %s\n", b.revision)
	// A program that has decided wrongly fails after it has printed its page.
	page, failed := b.output(ctx, b.program, arguments(part, rounds, b.smoke)...)
	tables, err := report.Read(strings.NewReader(page))
	return tables, errors.Join(failed, err)
}

// output runs a command where the benchmarks are. It returns what the command printed, also if it
// failed.
func (b *before) output(ctx context.Context, name string, args ...string) (string, error) {
	var out, told bytes.Buffer
	if err := execute(ctx, b.dir, &out, &told, name, args...); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, told.String())
	}
	return out.String(), nil
}
