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
	missing  = "redis-server is not on PATH"
)

// choice is what tests on this machine can run on besides miniredis.
type choice struct {
	programs []string
	outside  *redis.Options
}

func look(t testing.TB) choice {
	t.Helper()
	f, err := find(os.Getenv(variable))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func find(value string) (choice, error) {
	var f choice
	var resolved []string
	for _, name := range []string{"redis-server", "valkey-server"} {
		path, err := exec.LookPath(name)
		if err == nil {
			// A command may run in another folder than this one.
			path, err = filepath.Abs(path)
		}
		if err != nil {
			if name == "redis-server" && value == "require" {
				return choice{}, fmt.Errorf("%s, and %s=require forbids to go on without it", missing, variable)
			}
			continue
		}
		// Some distributions install Valkey under both names.
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return choice{}, err
		}
		if slices.Contains(resolved, target) {
			continue
		}
		resolved = append(resolved, target)
		f.programs = append(f.programs, path)
	}

	if value == "" || value == "require" {
		return f, nil
	}
	opt, err := parseAddress(value)
	if err != nil {
		return choice{}, err
	}
	f.outside = opt
	return f, nil
}

func parseAddress(value string) (*redis.Options, error) {
	if strings.HasPrefix(value, "redis://") || strings.HasPrefix(value, "rediss://") {
		opt, err := redis.ParseURL(value)
		if err != nil {
			// The URL may hold a password, which has no place in a test log;
			// errors of net/url quote all of it.
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
