// Package server starts the Redis servers that are measured, and reads what they say of themselves.
package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// patience bounds the wait for a server's start, long enough for a busy machine.
const patience = 15 * time.Second

// Server is a redis-server on the loopback that keeps nothing on disk.
type Server struct {
	// Addr is its host:port.
	Addr string

	port   int
	bus    int // of a cluster
	dir    string
	cmd    *exec.Cmd
	log    bytes.Buffer
	exited chan struct{}
	admin  *redis.Client
	asked  int64 // INFO calls of Usage
}

// Start runs the redis-server in PATH on a free port and waits until it answers.
func Start(ctx context.Context, args ...string) (*Server, error) {
	return startUnder(ctx, nil, args)
}

// startUnder runs a server by a program that takes it and its arguments as arguments of its own, if one is named.
func startUnder(ctx context.Context, by, args []string) (*Server, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("find a server to measure: %w", err)
	}
	for attempt := 1; ; attempt++ {
		s, err := start(ctx, append(slices.Clip(by), path), args)
		// What was free a moment ago may be taken.
		if err == nil || attempt == 5 || ctx.Err() != nil {
			return s, err
		}
	}
}

func start(ctx context.Context, program, args []string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the server: %w", err)
	}
	s := &Server{
		Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), port: port, dir: dir, exited: make(chan struct{}),
	}
	args = append([]string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no", "--daemonize", "no",
	}, args...)
	s.cmd = exec.Command(program[0], append(slices.Clip(program[1:]), args...)...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = dir, &s.log, &s.log
	// A terminal's Ctrl-C is for this program, which stops the server after its last command.
	apart(s.cmd)
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start redis-server: %w", err), os.RemoveAll(dir))
	}
	go func() {
		// A server that was killed always has an error here.
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	// To delete a million keys takes seconds.
	s.admin = s.Client(func(o *redis.Options) { o.PoolSize, o.MaxRetries, o.ReadTimeout = 1, -1, patience })
	if err := s.await(ctx); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start redis-server: %w; its log: %s", err, s.log.String())
	}
	return s, nil
}

func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		// A client backs off for a second after a failed dial.
		conn, err := net.DialTimeout("tcp", s.Addr, patience)
		var info map[string]string
		if err == nil {
			err = conn.Close()
		}
		if err == nil {
			info, err = s.Info(ctx, "server")
		}
		if err == nil && info["process_id"] != strconv.Itoa(s.cmd.Process.Pid) {
			return errors.New("another server answers at its port")
		}
		if err == nil {
			return nil
		}
		select {
		case <-s.exited:
			return errors.New("it ended")
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop ends the server and removes its folder. It may be called on nil.
func (s *Server) Stop() {
	if s == nil {
		return
	}
	// Each fails only if the client is closed or the process gone already, and there is nothing left to do then.
	_ = s.admin.Close()
	_ = s.cmd.Process.Kill()
	<-s.exited
	_ = os.RemoveAll(s.dir)
}

// Client returns a new client with the options that docs/redis.md advises for a limiter, the same
// for every contender that takes a client. Its pool is go-redis's own: ten connections a processor.
func (s *Server) Client(change ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{
		Addr: s.Addr, ContextTimeoutEnabled: true, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	for _, f := range change {
		f(o)
	}
	return redis.NewClient(o)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return 0, fmt.Errorf("free the port again: %w", err)
	}
	return port, nil
}
