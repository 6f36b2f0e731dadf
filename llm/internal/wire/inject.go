package wire

import (
	"slices"

	"github.com/headgate/headgate/llm/internal/jsonscan"
)

const (
	usageMember   = `"include_usage":true`
	usageOptions  = `{` + usageMember + `}`
	optionsMember = `"stream_options":` + usageOptions
)

// optionsPaths is the table that finds stream_options.
var optionsPaths = &node{Role: askBody, Watch: true, Kids: []*node{
	{Key: "stream_options", Role: askOptions, Watch: true,
		Kids: []*node{{Key: "include_usage", Role: askUsage}}},
}}

// UsageBytes is how much longer a body may become by InjectUsage.
const UsageBytes = int64(len(optionsMember) + 1)

// InjectUsage returns the body of a chat stream with stream_options.include_usage set to true.
// Every other byte stays as it is. It changes body in place if its capacity is UsageBytes larger.
// It returns body itself if that is not one JSON object.
func InjectUsage(body []byte) []byte { return UsageChange(body).Apply(body) }

// Change is a change of one part of a body. The zero value changes nothing.
type Change struct {
	from     int
	old, new string
}

// Apply changes a body in place if its capacity is large enough, and returns it.
func (c Change) Apply(body []byte) []byte {
	return slices.Replace(body, c.from, c.from+len(c.old), []byte(c.new)...)
}

// Undo returns a copy of a changed body as it was before.
func (c Change) Undo(body []byte) []byte {
	return slices.Concat(body[:c.from], []byte(c.old), body[c.from+len(c.new):])
}

// UsageChange returns what InjectUsage changes in a body.
func UsageChange(body []byte) Change {
	var f finder
	s := jsonscan.New(optionsPaths, &f)
	s.Scan(body)
	if !s.Finish() || f.body.kind != '{' {
		return Change{}
	}
	switch {
	case f.usage.kind != 0:
		return splice(body, f.usage, "true")
	case f.options.kind == '{':
		return insert(f.options, usageMember)
	case f.options.kind != 0:
		return splice(body, f.options, usageOptions)
	}
	return insert(f.body, optionsMember)
}

// insert adds a member at the beginning of an object.
func insert(at place, member string) Change {
	if at.filled {
		member += ","
	}
	return Change{from: at.from + 1, new: member}
}

// splice replaces a value.
func splice(body []byte, at place, text string) Change {
	return Change{at.from, string(body[at.from:at.to]), text}
}

// place is the bytes of a value: body[from:to].
type place struct {
	from, to int
	kind     byte // as jsonscan.Visitor has it, or 0
	filled   bool // the object has a member
}

// finder is the visitor that finds some members of a body. Of a key that comes twice the last one
// counts, but ParseRequest refuses such a body.
type finder struct {
	body, options, usage, model place
}

func (f *finder) at(n *node) *place {
	switch n.Role {
	case askBody:
		return &f.body
	case askOptions:
		return &f.options
	case askModel:
		return &f.model
	}
	return &f.usage
}

func (f *finder) Key(_ *jsonscan.Scanner, n *node) { f.at(n).filled = true }

func (f *finder) Begin(s *jsonscan.Scanner, n *node, kind byte) {
	if n.Role == askOptions {
		f.usage = place{}
	}
	*f.at(n) = place{from: s.Offset(), kind: kind}
}

func (f *finder) End(s *jsonscan.Scanner, n *node) { f.at(n).to = s.Offset() + 1 }

func (f *finder) Scalar(s *jsonscan.Scanner, n *node, kind byte) {
	if n.Role == askOptions {
		f.usage = place{}
	}
	to := s.Offset() + 1
	if kind == '0' {
		to = s.Offset() // the byte behind it has ended the number
	}
	*f.at(n) = place{from: s.Start(), to: to, kind: kind}
}
