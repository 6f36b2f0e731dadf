package trips

import (
	"runtime"
	"time"
)

// watch calls look after each step while there is something to look at.
type watch struct {
	step  time.Duration
	look  func()
	timer *time.Timer
	runs  bool
	due   time.Time // when the timer fires
}

// start makes sure that the timer runs.
func (w *watch) start() {
	if w.runs {
		return
	}
	w.runs, w.due = true, time.Now().Add(w.step)
	if w.timer == nil {
		w.timer = time.AfterFunc(w.step, w.look)
	} else {
		w.timer.Reset(w.step)
	}
}

// isLate reports, when the timer has fired, whether goroutines that are ready wait for their turn
// in this process, or timers do.
func (w *watch) isLate() bool {
	runtime.Gosched()
	return time.Since(w.due) > max(w.step/4, 3*time.Millisecond)
}
