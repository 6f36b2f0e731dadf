package house_test

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/gatetest"
)

// The most that Headgate may add to a stripped program. These are the sizes with Go 1.26 and a
// twentieth more, because other releases of Go differ by that much.
const (
	maxMemoryWeight = 1_210_000 // a Gate in memory, above net/http
	maxRedisWeight  = 1_700_000 // a Gate on Redis, above net/http and go-redis
)

// A Gate in memory leaves these of go-redis in a program: what its packages do when they are
// initialized, which every import of go-redis takes, and their errors.
const maxInitializers = 8000 // bytes

// go -C lab/bench run . -only weight prints the same sizes, beside those of other limiters.
func TestWeight(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the bounds are those of linux/amd64")
	}
	t.Parallel()
	dir := t.TempDir()
	out, err := exec.Command("go", "build", "-ldflags=-w", "-o", dir, "./internal/house/testdata/weight/...").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	size := func(name string) (bytes int64) { // without its symbols, as when stripped
		for _, s := range open(t, filepath.Join(dir, name)).Sections {
			if s.Type != elf.SHT_SYMTAB && s.Type != elf.SHT_STRTAB && s.Type != elf.SHT_NOBITS {
				bytes += int64(s.Size)
			}
		}
		return bytes
	}
	for _, c := range []struct {
		program, base string
		most          int64
	}{
		{"memory", "http", maxMemoryWeight},
		{"gate", "redis", maxRedisWeight},
	} {
		weight := size(c.program) - size(c.base)
		t.Logf("%s adds %d bytes to %s", c.program, weight, c.base)
		if weight > c.most {
			t.Errorf("%s adds %d bytes to %s, more than %d", c.program, weight, c.base, c.most)
		}
	}
	checkInitializers(t, open(t, filepath.Join(dir, "memory")))
}

func open(t *testing.T, file string) *elf.File {
	t.Helper()
	program := gatetest.Must(elf.Open(file))(t)
	t.Cleanup(func() { _ = program.Close() })
	return program
}

// checkInitializers finds functions of go-redis that are no part of its initialization.
func checkInitializers(t *testing.T, program *elf.File) {
	t.Helper()
	symbols := gatetest.Must(program.Symbols())(t)
	var count int
	var size uint64
	for _, s := range symbols {
		if !strings.Contains(s.Name, "github.com/redis/go-redis/") {
			continue
		}
		count++
		size += s.Size
		_, name, _ := strings.Cut(s.Name[strings.LastIndexByte(s.Name, '/')+1:], ".")
		isInit := name == "init" || strings.HasPrefix(name, "init.") ||
			strings.HasPrefix(s.Name, "type:") || name == "appendJSONIfDebug" // which an init calls
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && !isInit {
			t.Errorf("a program in memory has %s", s.Name)
		}
	}
	t.Logf("a program in memory has %d symbols of go-redis, %d bytes", count, size)
	if size > maxInitializers {
		t.Errorf("a program in memory has %d bytes of go-redis, more than %d", size, maxInitializers)
	}
}
