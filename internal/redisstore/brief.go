package redisstore

import "slices"

// periodPassed reports whether nothing ran because the limits of a batch do not hold at the
// server's time, which it returns.
func periodPassed(reply []int64) (now int64, passed bool) {
	if len(reply) == 2 && reply[0] == -1 {
		return reply[1], true
	}
	return 0, false
}

// isBrief reports whether a reply is one for request.SettleBrief. No verdict is as low, nor is the -1
// of a period that has passed.
func isBrief(reply []int64) bool {
	return !slices.ContainsFunc(reply, func(n int64) bool { return n >= -1 })
}
