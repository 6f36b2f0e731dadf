package main

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// patience is the longest wait of a test. It is long so that tests pass on a loaded machine.
const patience = 90 * time.Second

// endless makes answers so long that no test sees their end.
const endless = "TOKENS=100000000"

var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "llmchat")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "llmchat")
		if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
			panic(string(out))
		}
		return m.Run()
	}())
}

// replica is a process of the gateway.
type replica struct {
	url string
	cmd *exec.Cmd
}

func start(t *testing.T, env ...string) *replica {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = append(append(os.Environ(), "ADDR=127.0.0.1:0", "REDIS_URL=", "TOKEN_DELAY=20ms", "REQUESTS_PER_MINUTE=1000000",
		"REDIS_TIMEOUT=30s"), env...) // a loaded machine is slow, which must not count as an outage
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := regexp.MustCompile(`http://[0-9.:]+[0-9]`).FindString(line)
	if url == "" {
		t.Fatalf("no URL in %q", line)
	}
	return &replica{url, cmd}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(patience); !holds(); <-tick.C {
		if time.Now().After(until) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// open starts a stream without a browser. The test closes its body at the end.
func open(t *testing.T, r *replica, key string) (*http.Response, error) {
	request, err := http.NewRequest(http.MethodPost, r.url+"/v1/chat/completions", strings.NewReader(`{"stream":true}`))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(request)
	if err == nil {
		t.Cleanup(func() { _ = response.Body.Close() })
	}
	return response, err
}

func stream(t *testing.T, r *replica, key string) *http.Response {
	t.Helper()
	response, err := open(t, r, key)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// slots reads the caps of the default tenant.
type slots struct {
	t       *testing.T
	gateway *gateway
	key     core.Key
	redis   *redistest.Server
}

func look(t *testing.T, server *redistest.Server) slots {
	t.Helper()
	gate, err := core.NewRedis(server.Client(t), core.Config{Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := newGateway(gate, config{perMinute: 1}, "")
	if err != nil {
		t.Fatal(err)
	}
	tenant, err := gateway.tenant(&http.Request{})
	if err != nil {
		t.Fatal(err)
	}
	key, err := core.NewKey(tenant)
	if err != nil {
		t.Fatal(err)
	}
	return slots{t, gateway, key, server}
}

func (s slots) inUse() (holders []core.Holder, waiting int) {
	s.t.Helper()
	holders, waiting, err := s.gateway.streams.Holders(context.Background(), s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	return holders, waiting
}

// empty waits until there are no holders, no waiters and no keys of the semaphore.
func (s slots) empty() {
	s.t.Helper()
	eventually(s.t, "there are no holders and waiters", func() bool {
		holders, waiting := s.inUse()
		return len(holders) == 0 && waiting == 0
	})
	client := s.redis.Client(s.t)
	var keys []string
	eventually(s.t, "no key of the streams is left", func() bool {
		var err error
		if keys, err = client.Keys(context.Background(), "*:streams:*").Result(); err != nil {
			s.t.Fatal(err)
		}
		return len(keys) == 0
	})
}
