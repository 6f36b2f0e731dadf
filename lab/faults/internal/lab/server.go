package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Server is a process of redis-server. A restart keeps its address and its folder.
type Server struct {
	Addr string

	dir       string
	port, bus int // bus is that of a node of a cluster
	args, env []string
	trust     *authority

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
}

func newServer(dir string) (*Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	return &Server{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: dir, port: port}, nil
}

// freePort returns a free port below those that the system gives to outgoing connections.
func freePort() (port int, err error) {
	const lowest, end = 10000, 32768
	for range 1000 {
		port = lowest + rand.IntN(end-lowest)
		l, e := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err = e; e == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port: %w", err)
}

// Launch starts the process and waits until it answers, if only that it loads.
func (s *Server) Launch(extra ...string) error {
	s.mu.Lock()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		s.mu.Unlock()
		return err
	}
	cmd := exec.Command("redis-server", append(append([]string(nil), s.args...), extra...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.Env = append(os.Environ(), s.env...)
	err = cmd.Start()
	_ = log.Close() // the process has its own
	if err != nil {
		s.mu.Unlock()
		return err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the error of a killed server says nothing
		close(exited)
	}()
	s.cmd, s.exited = cmd, exited
	s.mu.Unlock()
	return await(func() error {
		_, err := s.Do("PING")
		if err != nil && strings.HasPrefix(err.Error(), "LOADING") {
			return nil
		}
		return err
	})
}

// Kill ends the process by SIGKILL, stopped or not, and waits for its end.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// Stop halts the process by SIGSTOP until Continue.
func (s *Server) Stop() error { return s.signal(syscall.SIGSTOP) }

// Continue undoes Stop.
func (s *Server) Continue() error { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process.Signal(sig)
}

// Admin returns a client that no fault of a link concerns. The caller closes it.
func (s *Server) Admin() *redis.Client {
	o := &redis.Options{
		Addr: s.Addr, ReadTimeout: 10 * time.Second, MaxRetries: -1, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if s.trust != nil {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return s.trust.anyClient(ctx, conn)
		}
	}
	return redis.NewClient(o)
}

// Do sends one command and returns its reply.
func (s *Server) Do(args ...any) (any, error) {
	client := s.Admin()
	defer client.Close()
	v, err := client.Do(context.Background(), args...).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return v, err
}

// Run sends commands whose replies do not matter, until one fails.
func (s *Server) Run(commands ...string) error {
	for _, line := range commands {
		var args []any
		for _, word := range strings.Fields(line) {
			args = append(args, word)
		}
		if _, err := s.Do(args...); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	return nil
}

// Info returns a field of INFO.
func (s *Server) Info(field string) (string, error) {
	v, err := s.Do("INFO")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(fmt.Sprint(v)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == field {
			return value, nil
		}
	}
	return "", fmt.Errorf("INFO of %s has no %s", s.Addr, field)
}

// expect returns an error unless a field of INFO has a value.
func (s *Server) expect(field, want string) error {
	got, err := s.Info(field)
	if err == nil && got != want {
		err = fmt.Errorf("%s of %s is %s instead of %s", field, s.Addr, got, want)
	}
	return err
}
