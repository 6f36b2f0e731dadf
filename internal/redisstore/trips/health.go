package trips

import "time"

const (
	// starveMemory is how long a process counts as one that starves, after a goroutine has waited long
	// for its turn.
	starveMemory = 5 * time.Second
	// longestWait bounds what a step is given because turns are long: whoever closes a Gate waits for it.
	longestWait = 10 * time.Second
)

// health is what a queue knows of its server and of its own process. The queue's lock guards it.
type health struct {
	timeout  time.Duration
	quick    bool          // the last round trip took less than a beat
	heard    time.Time     // when the last call was sent of those that the server has answered
	answered time.Time     // when the server last answered
	proven   time.Time     // when it last answered a probe
	lost     time.Duration // by how much the beats of this process were late, in all
	late     time.Duration // by how much the last one was
	turn     time.Duration // by how much two in a row were: how long a goroutine waits for its turn
	starved  time.Time     // when one was last late
	shed     bool          // calls ended as overload since overload was last reported
	reported time.Time     // when overload was last reported
	use      Use
}

// returned notes the outcome of a trip that has ended now.
func (h *health) returned(t *trip, err error) {
	now := time.Now()
	took := now.Sub(t.sent)
	h.use.add(t, took)
	h.quick = err == nil && took < h.timeout/8
	if err != nil {
		h.use.Failed++
		return
	}
	h.hears(t.sent, now)
}

// hears notes that the server answers now what was sent at an earlier time.
func (h *health) hears(sent, now time.Time) {
	h.answered = now
	if sent.After(h.heard) {
		h.heard = sent
	}
}

// answers reports whether the server answers, although not a call that was sent, or began to wait,
// at since, and whose caller entered at that time: the server has answered a later call, or another
// while this one waited, and not long ago.
func (h *health) answers(entered, since time.Time) bool {
	return h.heard.After(since) ||
		h.answered.After(entered) && time.Since(h.answered) < h.timeout/2
}

// isProven reports whether the server has answered a probe just before. Another may be on its way.
func (h *health) isProven() bool { return time.Since(h.proven) < h.timeout }

// isSilent reports whether the server has answered nothing since a round trip that began at that
// time and takes long.
func (h *health) isSilent(sent time.Time) bool {
	return time.Since(sent) >= h.timeout/2 && !h.heard.After(sent)
}

// beats notes by how much a beat of this process was late. A single one is a stall, after which turns
// are as short as before. With each beat that is less late a turn counts for half as much.
func (h *health) beats(late time.Duration) {
	h.lost += late
	h.turn, h.late = max(min(late, h.late), h.turn/2), late
	if late > 0 {
		h.starved = time.Now()
	}
}

// starves reports whether goroutines of this process lately waited long for their turn.
func (h *health) starves() bool { return time.Since(h.starved) < starveMemory }

// hasLongTurns reports whether they wait for so long now that calls may end by it: for a quarter of
// the time that a call may take.
func (h *health) hasLongTurns() bool { return h.turn >= h.timeout/4 && h.starves() }

// delay returns by how much a round trip may take longer now, because each of its steps takes a turn.
func (h *health) delay() time.Duration {
	if !h.hasLongTurns() {
		return 0
	}
	return min(steps*h.turn, longestWait)
}

// ends notes the error with which a call has ended.
func (h *health) ends(err error) { h.shed = h.shed || Classify(err) == Overload }

// overload reports whether calls have ended as overload, once a second at most.
func (h *health) overload() bool {
	if !h.shed || time.Since(h.reported) <= time.Second {
		return false
	}
	h.shed, h.reported = false, time.Now()
	return true
}
