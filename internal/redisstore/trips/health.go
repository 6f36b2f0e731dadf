package trips

import "time"

// lagMemory is how long a process counts as one that lags after it did.
const lagMemory = 5 * time.Second

// health is what a queue knows of its server and of its own process. The queue's lock guards it.
type health struct {
	timeout  time.Duration
	quick    bool          // the last round trip took less than a beat
	heard    time.Time     // when the last call was sent of those that the server has answered
	answered time.Time     // when the server last answered
	proven   time.Time     // when it last answered a probe
	lost     time.Duration // by how much the beats of this process were late
	lagged   time.Time     // when this process last had too little time for its goroutines
	stalled  time.Time     // when it lacked a quarter of the time that a call may take
	starving int           // beats in a row that were late by as long as a call may take
	starved  time.Time     // when there were several
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

// lags notes by how much a beat of this process was late.
func (h *health) lags(late time.Duration) {
	if late > 0 {
		h.lost += late
		h.lagged = time.Now()
	}
	if late >= h.timeout/4 {
		h.stalled = h.lagged
	}
	if late < h.timeout {
		h.starving = 0
	} else if h.starving++; h.starving > 1 { // a single one is a stall
		h.starved = h.lagged
	}
}

// starves reports whether this process has again and again not run for as long as a call may take. Its
// round trips have more time then, because it reads their answers late.
func (h *health) starves() bool { return time.Since(h.starved) < lagMemory/2 }

// isLagging reports whether this process had too little time for its goroutines lately.
func (h *health) isLagging() bool { return time.Since(h.lagged) < lagMemory }

// stalls reports whether it lacked so much lately that calls of that length may have ended by it.
func (h *health) stalls() bool { return time.Since(h.stalled) < lagMemory }

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
