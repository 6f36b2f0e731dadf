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

// isBrief reports whether a reply is brief. A brief reply has one number for each charge: -2 - 2 *
// the level that was found if the charge fits, otherwise -3 - 2 * the level. No verdict is as low,
// nor is the -1 of a period that has passed.
func isBrief(reply []int64) bool {
	return !slices.ContainsFunc(reply, func(n int64) bool { return n >= -1 })
}

// unfold appends the reply that a brief one stands for.
func unfold(reply, brief []int64) []int64 {
	verdict := int64(0)
	for i, n := range brief {
		if n%2 != 0 {
			verdict |= 1 << i
		}
	}
	reply = append(reply, verdict)
	for _, n := range brief {
		receipt := int64(0)
		if verdict == 0 {
			receipt = 1
		}
		reply = append(reply, (-2-n)/2, 0, receipt)
	}
	return reply
}
