package wire

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/headgate/headgate/llm/internal/jsonscan"
)

const (
	usageMember   = `"include_usage":true`
	usageOptions  = `{` + usageMember + `}`
	optionsMember = `"stream_options":` + usageOptions
)

// UsageBytes is how much longer a body may become by UsageChange.
const UsageBytes = int64(len(optionsMember) + 1)

// place is the bytes of a value in a body: body[from:to]. An object has no end.
type place struct {
	from, to int
	kind     byte // as jsonscan.Visitor has it, or 0
}

// places are what a body may be changed at, by role.
type places [lastPlace + 1]place

// set sets the place of a value with a role, unless nothing is changed there.
func (p *places) set(role jsonscan.Role, at place) {
	if role <= lastPlace {
		p[role] = at
	}
}

// Change is a change of one part of a body. The zero value changes nothing.
type Change struct {
	from     int
	old, new string
}

// Apply returns a changed body. It changes body in place if its capacity is large enough.
func (c Change) Apply(body []byte) []byte {
	return slices.Replace(body, c.from, c.from+len(c.old), []byte(c.new)...)
}

// Undo returns a copy of a changed body as it was before.
func (c Change) Undo(body []byte) []byte {
	return slices.Concat(body[:c.from], []byte(c.old), body[c.from+len(c.new):])
}

// UsageChange sets stream_options.include_usage to true in the body that was parsed. Every other
// byte stays as it is. It changes nothing in a form.
func (q *Request) UsageChange(body []byte) Change {
	options := q.at[askOptions]
	switch {
	case q.at[askUsage].kind != 0:
		return splice(body, q.at[askUsage], "true")
	case options.kind == '{':
		return insert(body, options, usageMember)
	case options.kind != 0:
		return splice(body, options, usageOptions)
	case q.at[askBody].kind != 0:
		return insert(body, q.at[askBody], optionsMember)
	}
	return Change{}
}

// ModelChange names another model in the body that was parsed. Every other byte stays as it is. It
// reports false for a form, and for a body that names none.
func (q *Request) ModelChange(body []byte, model string) (Change, bool) {
	name, err := json.Marshal(model)
	if err != nil || q.at[askModel].kind == 0 {
		return Change{}, false
	}
	return splice(body, q.at[askModel], string(name)), true
}

// insert adds a member at the beginning of an object.
func insert(body []byte, at place, member string) Change {
	if rest := bytes.TrimLeft(body[at.from+1:], " \t\r\n"); rest[0] != '}' {
		member += ","
	}
	return Change{from: at.from + 1, new: member}
}

// splice replaces a value.
func splice(body []byte, at place, text string) Change {
	return Change{at.from, string(body[at.from:at.to]), text}
}
