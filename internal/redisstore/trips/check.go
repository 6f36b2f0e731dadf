package trips

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The oldest Redis whose scripts can be relied on.
const (
	oldestMajor = 6
	oldestMinor = 2
)

// ErrServer is wrapped by the errors of Check about a server that cannot be used.
var ErrServer = errors.New("redisstore: unusable server")

// Check asks whether the server answers, is new enough, runs one script at a time, and is part of
// a cluster only if Config says so.
func (s *Servers) Check(ctx context.Context) error {
	if err := s.bounded(ctx, func() error { return s.Client.Ping(ctx).Err() }); err != nil {
		return err
	}
	var info string
	ask := func() (err error) {
		info, err = s.Client.Info(ctx).Result()
		return err
	}
	if s.bounded(ctx, ask) != nil {
		return nil // INFO may be forbidden, which does no harm
	}
	return s.checkInfo(info)
}

// checkInfo judges a server by what INFO says of it.
func (s *Servers) checkInfo(info string) error {
	version := field(info, "redis_version")
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if err1 == nil && err2 == nil && (a < oldestMajor || a == oldestMajor && b < oldestMinor) {
		return fmt.Errorf("%w: it has version %s, and %d.%d is needed",
			ErrServer, version, oldestMajor, oldestMinor)
	}
	if field(info, "cluster_enabled") == "1" && !s.Cluster {
		return fmt.Errorf("%w: %s", ErrServer, clusterAdvice)
	}
	if version := field(info, "garnet_version"); version != "" {
		return fmt.Errorf("%w: it is Garnet %s, which runs scripts at the same time and so admits "+
			"too much, unless LuaTransactionMode is on, which INFO does not tell", ErrServer, version)
	}
	return nil
}

func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
