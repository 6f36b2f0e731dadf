package server

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Usage is what servers have done since they started.
type Usage struct {
	// CPU is the processor time of the server, user and system.
	CPU time.Duration
	// Reads is how often it read from a socket: one for a command that is sent alone, less where commands share a
	// packet.
	Reads int64
}

// Info returns the fields of a section of INFO.
func (s *Server) Info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.admin.Info(ctx, section).Result()
	if err != nil {
		return nil, fmt.Errorf("INFO: %w", err)
	}
	return parse(text), nil
}

// Usage returns what the server has done, less what asking for it costs.
func (s *Server) Usage(ctx context.Context) (Usage, error) {
	cpu, err := s.Info(ctx, "cpu")
	if err != nil {
		return Usage{}, err
	}
	stats, err := s.Info(ctx, "stats")
	if err != nil {
		return Usage{}, err
	}
	var seconds float64
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		n, err := strconv.ParseFloat(cpu[field], 64)
		if err != nil {
			return Usage{}, fmt.Errorf("INFO cpu: %s: %w", field, err)
		}
		seconds += n
	}
	reads, err := strconv.ParseInt(stats["total_reads_processed"], 10, 64)
	if err != nil {
		return Usage{}, fmt.Errorf("INFO stats: total_reads_processed: %w", err)
	}
	s.asked += 2
	return Usage{CPU: time.Duration(seconds * float64(time.Second)), Reads: reads - s.asked}, nil
}

// Memory returns what the keys of a pattern take in Redis, with their names, and those names.
func (s *Server) Memory(ctx context.Context, pattern string) (size int64, names []string, err error) {
	keys := s.admin.Scan(ctx, 0, pattern, 1000).Iterator()
	for keys.Next(ctx) {
		n, err := s.admin.MemoryUsage(ctx, keys.Val(), 0).Result()
		if err != nil {
			return 0, nil, fmt.Errorf("MEMORY USAGE: %w", err)
		}
		size += n
		names = append(names, keys.Val())
	}
	if err := keys.Err(); err != nil {
		return 0, nil, fmt.Errorf("SCAN: %w", err)
	}
	return size, names, nil
}

// Clear deletes all keys, and waits until their memory is free.
func (s *Server) Clear(ctx context.Context) error {
	if err := s.admin.FlushAll(ctx).Err(); err != nil {
		return fmt.Errorf("FLUSHALL: %w", err)
	}
	return nil
}

func parse(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}
