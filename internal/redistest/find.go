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

// servers are what tests on this machine can run on besides miniredis.
type servers struct {
	programs []string       // paths
	outside  *redis.Options // of the server that the environment names, or nil
}

func findServers(t testing.TB) servers {
	t.Helper()
	found, err := find(os.Getenv(variable))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func find(value string) (servers, error) {
	var found servers
	var resolved []string
	for _, name := range []string{"redis-server", "valkey-server"} {
		path, err := exec.LookPath(name)
		if err == nil {
			// A command may run in another directory.
			path, err = filepath.Abs(path)
		}
		if err != nil {
			if name == "redis-server" && value == "require" {
				return servers{}, fmt.Errorf("%s, and %s=require needs it", missing, variable)
			}
			continue
		}
		// Some distributions install Valkey under both names.
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return servers{}, err
		}
		if slices.Contains(resolved, target) {
			continue
		}
		resolved = append(resolved, target)
		found.programs = append(found.programs, path)
	}

	if value == "" || value == "require" {
		return found, nil
	}
	opt, err := parseAddress(value)
	if err != nil {
		return servers{}, err
	}
	found.outside = opt
	return found, nil
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
