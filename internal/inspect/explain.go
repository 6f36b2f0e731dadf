package inspect

import (
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redisstore/trips"
)

// forbidden finds the command, and the key or the channel, in the words by which Redis refuses it.
var (
	forbiddenCommand = regexp.MustCompile(`no permissions to run the '([a-z|]+)' command`)
	forbiddenUser    = regexp.MustCompile(`User (\S+) has no permissions`)
)

// explained is an error with its explanation.
type explained struct {
	words string
	err   error
}

func (e *explained) Error() string { return e.words + ": " + e.err.Error() }
func (e *explained) Unwrap() error { return e.err }

// Explain adds to an error what it means, such as which right of the ACL of Redis is missing. Other
// errors, and nil, are returned as they are.
func Explain(err error) error {
	if err == nil || errors.As(err, new(*explained)) {
		return err
	}
	if right := missingRight(err); right != "" {
		return &explained{"the user of Redis lacks the right " + right, err}
	}
	if errors.Is(err, core.ErrMisconfigured) {
		return &explained{trips.Explain(err), err}
	}
	return err
}

// Cause says in a few words why something is not known, without the words of Redis itself.
func Cause(err error) string {
	var e *explained
	var u *UnknownLimit
	switch {
	case errors.As(err, &u):
		return "the limit under " + u.Policy + ": " + u.why()
	case errors.Is(err, core.ErrClosed):
		return "the Gate is closed"
	case errors.Is(err, core.ErrOverloaded):
		return "this process cannot ask Redis in time"
	case errors.As(Explain(err), &e):
		return e.words
	case errors.Is(err, core.ErrCircuitOpen) || errors.Is(err, trips.ErrOpen) || errors.Is(err, trips.ErrUnanswered):
		return "Redis does not answer"
	case errors.As(err, new(redis.Error)) || errors.As(err, new(net.Error)) || errors.Is(err, io.EOF):
		return trips.Explain(err)
	}
	return "a part of the answer is missing"
}

// missingRight returns the right of the ACL of Redis whose lack caused an error, as it stands in
// docs/redis.md, such as +hmget. It is empty for other errors, and for those of scripts, before Redis 7.2,
// which do not name it.
func missingRight(err error) string {
	if command := forbiddenCommand.FindStringSubmatch(err.Error()); command != nil {
		return "+" + command[1]
	}
	return ""
}

// Advice returns what an operator can do about an error, or an empty text.
func Advice(err error) string {
	right, user := missingRight(err), "USER"
	if right == "" {
		return ""
	}
	if name := forbiddenUser.FindStringSubmatch(err.Error()); name != nil {
		user = name[1]
	}
	return fmt.Sprintf("ACL SETUSER %s %s", user, right)
}
