package provider

import "time"

// Units of a Limit.
const (
	Requests = "requests"
	Tokens   = "tokens"
)

// Limit is one limit of a provider. OpenAI and Anthropic count in buckets that refill evenly, GitHub
// in windows.
type Limit struct {
	Unit string        // Requests or Tokens
	N    int64         // units in each Per
	Per  time.Duration // at most an hour
	// Burst is the size of the bucket. Zero means N.
	Burst int64
	// Window counts in windows in place of a bucket, each of which begins with the first request after
	// the one before.
	Window bool
	// Log counts what came in the last Per, in place of a bucket.
	Log bool
}

func (l *Limit) name() string { return l.Unit + " in " + l.Per.String() }

func (l *Limit) cost(tokens int64) int64 {
	if l.Unit == Tokens {
		return tokens
	}
	return 1
}

func (l *Limit) burst() int64 {
	if l.Burst > 0 && !l.Window && !l.Log {
		return l.Burst
	}
	return l.N
}

// state is what is used of a limit.
type state struct {
	// level is what is in a bucket, in units times Per in nanoseconds, so that it is exact.
	level int64
	used  int64 // of a window or a log
	at    time.Time
	log   []logged
}

// logged is a cost in a log.
type logged struct {
	at   time.Time
	cost int64
}

// never is the wait of a cost above the limit, which no time lets fit.
const never = 24 * time.Hour

// wait returns the time until a cost fits, and 0 if it fits now.
func (s *state) wait(l *Limit, now time.Time, cost int64) time.Duration {
	if cost > l.burst() {
		return never
	}
	if l.Window {
		if now.Sub(s.at) >= l.Per {
			s.at, s.used = now, 0
		}
		if s.used+cost <= l.N {
			return 0
		}
		return s.at.Add(l.Per).Sub(now)
	}
	if l.Log {
		return s.logWait(l, now, cost)
	}
	unit := l.Per.Nanoseconds()
	if full := time.Duration(l.burst() * unit / l.N); now.Sub(s.at) > full {
		s.level = 0
	} else if now.After(s.at) {
		s.level = max(0, s.level-l.N*now.Sub(s.at).Nanoseconds())
	}
	if now.After(s.at) {
		s.at = now
	}
	over := s.level + cost*unit - l.burst()*unit
	if over <= 0 {
		return 0
	}
	return time.Duration((over + l.N - 1) / l.N)
}

func (s *state) logWait(l *Limit, now time.Time, cost int64) time.Duration {
	s.at = now
	for len(s.log) > 0 && now.Sub(s.log[0].at) >= l.Per {
		s.used -= s.log[0].cost
		s.log = s.log[1:]
	}
	over := s.used + cost - l.N
	for _, e := range s.log {
		if over <= 0 {
			break
		}
		if over -= e.cost; over <= 0 {
			return e.at.Add(l.Per).Sub(now)
		}
	}
	return 0
}

// spend counts a cost that fits, after wait. A negative one gives back.
func (s *state) spend(l *Limit, cost int64) {
	if l.Log {
		s.log = append(s.log, logged{s.at, cost})
	}
	s.used += cost
	s.level += cost * l.Per.Nanoseconds()
}

// left is what a limit has left.
type left struct {
	limit *Limit
	n     int64
	reset time.Duration // until it is full
}

func (s *state) left(l *Limit, now time.Time) left {
	if l.Window || l.Log {
		return left{l, l.N - s.used, s.at.Add(l.Per).Sub(now)}
	}
	unit := l.Per.Nanoseconds()
	return left{l, (l.burst()*unit - s.level) / unit, time.Duration((s.level + l.N - 1) / l.N)}
}
