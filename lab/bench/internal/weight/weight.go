// Package weight builds programs with and without a limiter, and compares their sizes.
package weight

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/headgate/headgate/lab/bench/internal/report"
)

// The programs of this module and those that a test of the root module builds too.
const (
	peers = "github.com/headgate/headgate/lab/bench/internal/weight/"
	ours  = "github.com/headgate/headgate/internal/house/testdata/weight/"
)

var rows = []struct{ label, base, program string }{
	{"net/http and Headgate in memory", ours + "http", ours + "memory"},
	{"net/http and httprate", ours + "http", peers + "httprate"},
	{"net/http, go-redis and Headgate on Redis", ours + "redis", ours + "gate"},
	{"net/http, go-redis and redis_rate", ours + "redis", peers + "redisrate"},
}

// Run builds the programs.
func Run(ctx context.Context) ([]report.Table, error) {
	dir, err := os.MkdirTemp("", "weight")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	t := report.Table{
		Title: "Size of a program",
		Note: "KB that a limiter adds to the same program without it. Stripped is with " +
			"`-ldflags='-s -w'`. Instructions are the section .text of these; the rest of a stripped " +
			"program is read-only data and Go's tables, which grow with the instructions. The first " +
			"two programs serve with net/http, the others also use a client of go-redis.",
		Columns: []string{"", "stripped, KB", "instructions, KB", "not stripped, KB"},
	}
	for _, r := range rows {
		cells := []string{r.label}
		for _, flags := range []string{"-s -w", ""} {
			base, err := sizeOf(ctx, dir, r.base, flags)
			if err != nil {
				return nil, err
			}
			whole, err := sizeOf(ctx, dir, r.program, flags)
			if err != nil {
				return nil, err
			}
			kilobytes := func(n int64) string { return report.Number(float64(n) / 1000) }
			cells = append(cells, kilobytes(whole.file-base.file))
			if flags != "" {
				cells = append(cells, kilobytes(whole.text-base.text))
			}
		}
		t.Add(cells...)
	}
	return []report.Table{t}, nil
}

// size is bytes of a program.
type size struct {
	file int64
	text int64 // the instructions
}

// sizeOf returns the size of a program that is linked with these flags.
func sizeOf(ctx context.Context, dir, program, flags string) (size, error) {
	file := filepath.Join(dir, "program")
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags="+flags, "-o", file, program)
	if out, err := cmd.CombinedOutput(); err != nil {
		return size{}, fmt.Errorf("build %s: %w: %s", program, err, out)
	}
	info, err := os.Stat(file)
	if err != nil {
		return size{}, fmt.Errorf("find the program: %w", err)
	}
	code, err := elf.Open(file)
	if err != nil {
		return size{}, fmt.Errorf("read the program: %w", err)
	}
	defer func() { _ = code.Close() }() // it was only read
	text := code.Section(".text")
	if text == nil {
		return size{}, fmt.Errorf("%s has no instructions", program)
	}
	return size{info.Size(), int64(text.Size)}, nil
}
