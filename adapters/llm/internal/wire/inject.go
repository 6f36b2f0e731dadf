package wire

import (
	"slices"

	"github.com/headgate/headgate/adapters/llm/internal/jsonscan"
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
func InjectUsage(body []byte) []byte {
	var f optionsFinder
	s := jsonscan.New(optionsPaths, &f)
	s.Scan(body)
	if !s.Finish() || !f.body.object {
		return body
	}
	switch {
	case f.usage.found:
		return splice(body, f.usage.from, f.usage.to, "true")
	case f.options.object:
		return insert(body, f.options, usageMember)
	case f.options.found:
		return splice(body, f.options.from, f.options.to, usageOptions)
	}
	return insert(body, f.body, optionsMember)
}

// insert adds a member at the beginning of an object.
func insert(body []byte, at place, member string) []byte {
	if at.filled {
		member += ","
	}
	return splice(body, at.from+1, at.from+1, member)
}

// splice returns body with text in place of body[from:to].
func splice(body []byte, from, to int, text string) []byte {
	return slices.Replace(body, from, to, []byte(text)...)
}

// place is the bytes of a value: body[from:to].
type place struct {
	from, to int
	found    bool
	object   bool
	filled   bool // the object has a member
}

// optionsFinder is the visitor that finds stream_options. Of a key that comes twice the last one
// counts, but ParseRequest refuses such a body.
type optionsFinder struct {
	body, options, usage place
}

func (f *optionsFinder) at(n *node) *place {
	switch n.Role {
	case askBody:
		return &f.body
	case askOptions:
		return &f.options
	}
	return &f.usage
}

func (f *optionsFinder) Key(_ *jsonscan.Scanner, n *node) { f.at(n).filled = true }

func (f *optionsFinder) Begin(s *jsonscan.Scanner, n *node, kind byte) {
	if n.Role == askOptions {
		f.usage = place{}
	}
	*f.at(n) = place{from: s.Offset(), found: true, object: kind == '{'}
}

func (f *optionsFinder) End(s *jsonscan.Scanner, n *node) { f.at(n).to = s.Offset() + 1 }

func (f *optionsFinder) Scalar(s *jsonscan.Scanner, n *node, kind byte) {
	if n.Role == askOptions {
		f.usage = place{}
	}
	to := s.Offset() + 1
	if kind == '0' {
		to = s.Offset() // the byte behind it has ended the number
	}
	*f.at(n) = place{from: s.Start(), to: to, found: true}
}
