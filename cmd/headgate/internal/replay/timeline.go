package replay

import "time"

// Timeline is the requests and the refusals over time, in columns of equal width. The columns
// become twice as wide whenever there would be too many. The zero value is empty.
type Timeline struct {
	start   int64 // microseconds; of the first column
	width   int64
	columns []Column
}

// Column is the requests of one stretch of time.
type Column struct{ Requests, Refused int64 }

// maxColumns bounds the columns. It is even.
const maxColumns = 256

// add counts a request at a time in microseconds, not before the last one.
func (t *Timeline) add(now int64) {
	if t.width == 0 {
		t.width = time.Second.Microseconds()
		t.start = now - now%t.width
	}
	for (now-t.start)/t.width >= maxColumns {
		t.double()
	}
	at := int((now - t.start) / t.width)
	for len(t.columns) <= at {
		t.columns = append(t.columns, Column{})
	}
	t.columns[at].Requests++
}

// double makes the columns twice as wide.
func (t *Timeline) double() {
	t.width *= 2
	for i, c := range t.columns {
		if i%2 == 0 {
			t.columns[i/2] = c
			continue
		}
		t.columns[i/2].Requests += c.Requests
		t.columns[i/2].Refused += c.Refused
	}
	t.columns = t.columns[:(len(t.columns)+1)/2]
}

// refuse counts a refusal of the request that was added last.
func (t *Timeline) refuse() { t.columns[len(t.columns)-1].Refused++ }

// Start returns when the first column begins, in UTC.
func (t *Timeline) Start() time.Time { return time.UnixMicro(t.start).UTC() }

// Width returns how long a column is.
func (t *Timeline) Width() time.Duration { return time.Duration(t.width) * time.Microsecond }

// Columns returns the columns. They must not be changed.
func (t *Timeline) Columns() []Column { return t.columns }
