package llm

import "slices"

const (
	usageMember   = `"include_usage":true`
	usageOptions  = `{` + usageMember + `}`
	optionsMember = `"stream_options":` + usageOptions
)

// optionsPaths is the table for where stream_options stands.
var optionsPaths = &node{role: askBody, watch: true, kids: []*node{
	{key: "stream_options", role: askOptions, watch: true,
		kids: []*node{object("include_usage", askUsage)}},
}}

// injectUsage returns the body of a chat stream with stream_options.include_usage set to true.
// Every other byte stays as it is. It returns body itself if that is not one JSON object.
func injectUsage(body []byte) []byte {
	var f optionsFinder
	s := scanner{visit: &f, root: optionsPaths}
	s.reset()
	s.scan(body)
	if !s.finish() || !f.body.object {
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

// splice returns a copy of body with text in place of body[from:to].
func splice(body []byte, from, to int, text string) []byte {
	return slices.Concat(body[:from], []byte(text), body[to:])
}

// place is where a value stands: body[from:to].
type place struct {
	from, to int
	found    bool
	object   bool
	filled   bool // the object has a member
}

// optionsFinder is the visitor that finds stream_options. Where a key comes twice the last one
// counts, but parseRequest refuses such a body.
type optionsFinder struct {
	body, options, usage place
}

func (f *optionsFinder) at(n *node) *place {
	switch n.role {
	case askBody:
		return &f.body
	case askOptions:
		return &f.options
	}
	return &f.usage
}

func (f *optionsFinder) key(_ *scanner, n *node) { f.at(n).filled = true }

func (f *optionsFinder) begin(s *scanner, n *node, kind byte) {
	if n.role == askOptions {
		f.usage = place{}
	}
	*f.at(n) = place{from: s.offset, found: true, object: kind == '{'}
}

func (f *optionsFinder) end(s *scanner, n *node) { f.at(n).to = s.offset + 1 }

func (f *optionsFinder) scalar(s *scanner, n *node, kind byte) {
	if n.role == askOptions {
		f.usage = place{}
	}
	to := s.offset + 1
	if kind == '0' {
		to = s.offset // the byte behind it has ended the number
	}
	*f.at(n) = place{from: s.start, to: to, found: true}
}
