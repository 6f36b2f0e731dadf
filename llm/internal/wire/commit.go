package wire

import (
	"slices"

	"github.com/headgate/headgate/llm/internal/jsonscan"
)

// commit adds what the event said. The usage of an invalid event does not count.
func (r *reader) commit(valid bool) {
	e, f := &r.event, &r.found
	r.addText(f)
	e.texts = texts{}
	if !valid {
		return
	}
	f.Failed = f.Failed || e.fault || e.kind == failedEvent || e.kind == faultEvent
	f.Complete = f.Complete || e.done || e.kind == endEvent || e.kind == failedEvent
	r.refused = r.refused || e.refusal
	r.finished = r.finished || e.finish
	f.Told = f.Complete || r.finished && r.lone
	r.counts.merge(&e.counts)
	r.commitBill()
}

// addText adds the text of the event, as far as it has come. Of reasoning under two names one counts.
func (r *reader) addText(f *Response) {
	t := r.event.texts
	for i := range t {
		t[i] += r.json.Within(tellText + jsonscan.Role(i))
	}
	if text := t[0] + max(t[1], t[2]); text > 0 && r.event.kind != silentEvent {
		f.Events++
		f.TextBytes += text
	}
}

// commitBill adds what the event listed: a list replaces the last one.
func (r *reader) commitBill() {
	e := &r.event
	if e.kind == itemEvent {
		r.bill.items.add(&e.items)
	} else if e.listed && !e.items.empty() {
		r.bill.items = e.items
	}
	if e.extra != (Usage{}) || len(e.others) > 0 {
		r.bill.extra, r.bill.others = e.extra, e.others
	}
}

// conclude determines the usage from what has been read so far, and whether it is final: only the
// end of the response makes it that.
func (r *reader) conclude(f *Response) {
	t, counts := &r.format.table, r.counts
	if f.Complete {
		counts.complete()
	}
	f.Usage = counts.usage(t.Beside, t.ImageOut).plus(r.bill.extra)
	f.Units = r.bill.pieces(counts.stated != 0)
	f.Others = r.bill.others
	if r.bill.drawn != (Usage{}) {
		f.Others = append(slices.Clip(f.Others), ModelUsage{r.draws, r.bill.drawn})
	}
	f.Stated = r.cost()
	f.InputKnown = counts.states(inputCount) && f.Usage.prompt() > 0 // 0 is no number yet
	f.OutputKnown = f.Complete && counts.states(outputCount) && f.Usage.Total() > f.Usage.prompt()
	f.Known = (f.Complete || r.over) && !r.corrupted && r.stated(f, &counts)
	if f.Known && r.refused && f.Events == 0 { // not billed
		f.Usage, f.Others, f.Units = Usage{}, nil, nil
	}
	if f.Known && r.over { // the last text may be younger than the usage
		f.Usage.Output = max(f.Usage.Output, f.Events-f.Usage.AudioOut-f.Usage.ImageOut)
	}
}

// stated reports whether the response has stated what it used. A prompt of 0 tokens has no answer,
// and an answer has tokens: servers that do not know a number state 0.
func (r *reader) stated(f *Response, c *counts) bool {
	t, prompt := &r.format.table, f.Usage.prompt()
	switch {
	case t.Unit != "" && len(f.Units) > 0:
		return true
	case (f.Events > 0 || t.NoOutput) && prompt == 0, f.Events > 0 && f.Usage.Total() == prompt:
		return false
	}
	return c.whole() || t.OneSided && c.stated != 0
}
