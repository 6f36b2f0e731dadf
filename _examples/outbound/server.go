package main

import (
	"fmt"
	"log"
	"net"
	"os/exec"
	"strconv"
	"time"
)

// server is a Redis without a disk: it forgets everything when it ends.
type server struct {
	program, addr string
	process       *exec.Cmd
}

func startServer(program string) (*server, error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{program: program, addr: free.Addr().String()}
	if err := free.Close(); err != nil {
		return nil, err
	}
	return s, s.start()
}

// start starts the program, and waits until it listens.
func (s *server) start() error {
	_, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return err
	}
	s.process = exec.Command(s.program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	if err := s.process.Start(); err != nil {
		return err
	}
	for range 500 {
		if conn, err := net.Dial("tcp", s.addr); err == nil {
			return conn.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("%s does not listen at %s", s.program, s.addr)
}

func (s *server) kill() {
	_ = s.process.Process.Kill() // it fails only if the process has ended
	_ = s.process.Wait()
}

func (s *server) signal(name string) error {
	return exec.Command("kill", "-"+name, strconv.Itoa(s.process.Process.Pid)).Run()
}

// fail kills the server, starts it again, pauses it, and restarts it, all within a time.
func (s *server) fail(within time.Duration) error {
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"killed", func() error { s.kill(); return nil }},
		{"started", s.start},
		{"paused", func() error { return s.signal("STOP") }},
		{"continued", func() error { return s.signal("CONT") }},
		{"restarted", func() error { s.kill(); return s.start() }},
	} {
		time.Sleep(within / 7)
		if err := step.do(); err != nil {
			return fmt.Errorf("a Redis that is to be %s: %w", step.name, err)
		}
		log.Printf("Redis is %s", step.name)
	}
	return nil
}
