package redisstore

import (
	"context"

	"github.com/headgate/headgate/internal/stated"
)

// StatePolicies states policies in Redis: the lines of stated.Policy.
func (s *Store) StatePolicies(ctx context.Context, lines []string) error {
	args := []any{stated.Kept.Milliseconds(), stated.Most}
	for _, line := range lines {
		args = append(args, line)
	}
	return s.Servers.Within(ctx, func(ctx context.Context) error {
		return s.policies.Run(ctx, s.Client, []string{s.Prefix + stated.Key}, s.clocked(args)...).Err()
	})
}
