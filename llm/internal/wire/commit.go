package wire

import "slices"

// commit adds what the event said. The usage of an invalid event does not count.
func (r *reader) commit(valid bool) {
	e, f := &r.event, &r.found
	e.text += r.json.Within(tellText)
	if e.kind == silentEvent {
		e.text = 0
	}
	if e.text > 0 {
		f.Events++
		f.TextBytes += e.text
	}
	e.text = 0
	if !valid {
		return
	}
	f.Failed = f.Failed || e.fault || e.kind == failedEvent || e.kind == faultEvent
	r.refused = r.refused || e.refusal
	r.finished = r.finished || e.finish
	e.done = e.done || e.kind == endEvent || e.kind == failedEvent
	r.commitBill()
	if e.counts.stated != 0 {
		r.counts.merge(&e.counts)
	}
	r.conclude()
	f.Told = f.Complete || r.finished && r.lone
}

// conclude determines the usage from what has been read so far, and whether it is final: only the
// end of the response makes it that.
func (r *reader) conclude() {
	f, t := &r.found, &r.format.table
	f.Complete = f.Complete || r.event.done
	if f.Complete {
		r.counts.complete()
	}
	f.Usage = r.counts.usage(t.Beside, t.ImageOut).plus(r.total.extra)
	f.Others = r.total.others
	if r.total.drawn != (Usage{}) {
		f.Others = append(slices.Clip(f.Others), ModelUsage{r.draws, r.total.drawn})
	}
	f.InputKnown = r.counts.states(inputCount) && f.Usage.prompt() > 0 // 0 is no number yet
	f.OutputKnown = f.Complete && r.counts.states(outputCount) && f.Usage.Total() > f.Usage.prompt()
	f.Known = f.Complete && r.stated()
	if f.Known && r.refused && f.Events == 0 { // not billed
		f.Usage, f.Others, f.Units = Usage{}, nil, nil
	}
}

// stated reports whether the response has stated what it used. A prompt of 0 tokens has no answer,
// and an answer has tokens: servers that do not know a number state 0.
func (r *reader) stated() bool {
	f, t := &r.found, &r.format.table
	prompt := f.Usage.prompt()
	switch {
	case t.Unit != "" && len(f.Units) > 0:
		return true
	case (f.Events > 0 || t.NoOutput) && prompt == 0, f.Events > 0 && f.Usage.Total() == prompt:
		return false
	}
	return r.counts.whole() || t.OneSided && r.counts.stated != 0
}
