// Package weight builds programs with and without a limiter, and compares their sizes.
package weight

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/headgate/headgate/bench/internal/report"
)

// The programs of this module and those that a test of the root module builds too.
const (
	peers = "github.com/headgate/headgate/bench/internal/weight/"
	ours  = "github.com/headgate/headgate/testdata/weight/"
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
		Note: "KB that a limiter adds to the same program without it. Stripped is with `-ldflags='-s -w'`. The first two programs " +
			"serve with net/http, the others also use a client of go-redis.",
		Columns: []string{"", "stripped, KB", "not stripped, KB"},
	}
	for _, r := range rows {
		cells := []string{r.label}
		for _, flags := range []string{"-s -w", ""} {
			base, err := size(ctx, dir, r.base, flags)
			if err != nil {
				return nil, err
			}
			whole, err := size(ctx, dir, r.program, flags)
			if err != nil {
				return nil, err
			}
			cells = append(cells, report.Number(float64(whole-base)/1000))
		}
		t.Add(cells...)
	}
	return []report.Table{t}, nil
}

// size returns the bytes of a program that is linked with these flags.
func size(ctx context.Context, dir, program, flags string) (int64, error) {
	file := filepath.Join(dir, "program")
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags="+flags, "-o", file, program)
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build %s: %w: %s", program, err, out)
	}
	info, err := os.Stat(file)
	if err != nil {
		return 0, fmt.Errorf("find the program: %w", err)
	}
	return info.Size(), nil
}
