package redistest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	variable = "HEADGATE_TEST_REDIS"
	chosen   = "HEADGATE_TEST_SERVER"
	missing  = "redis-server is not on PATH"
)

// servers are what tests on this machine can run on besides miniredis.
type servers struct {
	programs []string       // paths
	outside  *redis.Options // of the server that the environment names, or nil
}

func findServers(t testing.TB) servers {
	t.Helper()
	found, err := find(os.Getenv(variable), os.Getenv(chosen))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// find returns the servers for these values of the environment variables.
func find(value, program string) (found servers, err error) {
	if program != "" {
		if !filepath.IsAbs(program) { // each package's tests run in a directory of their own
			return servers{}, fmt.Errorf("%s is %s: it must be an absolute path", chosen, program)
		}
		if program, err = exec.LookPath(program); err != nil {
			return servers{}, fmt.Errorf("%s: %w", chosen, err)
		}
		found.programs = []string{program}
	} else if found.programs, err = onPath(value == "require"); err != nil {
		return servers{}, err
	}
	if value == "" || value == "require" {
		return found, nil
	}
	found.outside, err = parseAddress(value)
	return found, err
}

// onPath returns the programs that are on PATH.
func onPath(required bool) (programs []string, err error) {
	var resolved []string
	for _, name := range []string{"redis-server", "valkey-server"} {
		path, err := exec.LookPath(name)
		if err == nil {
			// A command may run in another directory.
			path, err = filepath.Abs(path)
		}
		if err != nil {
			if name == "redis-server" && required {
				return nil, fmt.Errorf("%s, and %s=require needs it", missing, variable)
			}
			continue
		}
		// Some distributions install Valkey under both names.
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, err
		}
		if slices.Contains(resolved, target) {
			continue
		}
		resolved = append(resolved, target)
		programs = append(programs, path)
	}
	return programs, nil
}

func parseAddress(value string) (*redis.Options, error) {
	if strings.HasPrefix(value, "redis://") || strings.HasPrefix(value, "rediss://") {
		opt, err := redis.ParseURL(value)
		if err != nil {
			// The error of net/url quotes the URL, which may hold a password.
			return nil, fmt.Errorf("%s is not a valid redis:// or rediss:// URL", variable)
		}
		return opt, nil
	}
	host, port, err := net.SplitHostPort(value)
	if err != nil || host == "" || port == "" {
		return nil, fmt.Errorf("%s must be empty, require, host:port, or a redis:// or rediss:// URL", variable)
	}
	return &redis.Options{Addr: value}, nil
}
