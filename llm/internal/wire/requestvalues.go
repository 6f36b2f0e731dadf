package wire

import (
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/llm/internal/jsonscan"
)

// model reads the name of a model.
func (p *requestParser) model(s *jsonscan.Scanner, kind byte) string {
	name := string(s.Text())
	fault := faultOfModel(name)
	switch {
	case kind != '"':
		fault = "model is no string"
	case s.Size() > maxModel:
		fault = longModel
	}
	if fault != "" {
		p.fail(s, "%s", fault)
	}
	return name
}

const longModel = "model is longer than 256 bytes"

// faultOfModel returns what is wrong with the name of a model. It refuses U+FFFD, which stands for
// bytes that each server decodes in its own way.
func faultOfModel(name string) string {
	switch {
	case name == "":
		return "model is empty"
	case len(name) > maxModel:
		return longModel
	case strings.ContainsRune(name, utf8.RuneError) || !utf8.ValidString(name):
		return "model is not valid UTF-8"
	}
	return ""
}

// flag reads a boolean. Null means that the member is absent, as in every number.
func (p *requestParser) flag(s *jsonscan.Scanner, n *node, kind byte) bool {
	if kind != 't' && kind != 'f' && kind != 'n' {
		p.fail(s, "%s is no boolean", n.Key)
	}
	return kind == 't'
}

// limit reads a cap. Some servers take -1 and -2 for none.
func (p *requestParser) limit(s *jsonscan.Scanner, n *node, kind byte) int64 {
	if text := string(s.Text()); kind == '0' && (text == "-1" || text == "-2") {
		return 0
	}
	return p.count(s, n, kind, MaxCount)
}

// count reads an integer between 0 and most. Some servers take 1e3 or 5.0 and others do not.
func (p *requestParser) count(s *jsonscan.Scanner, n *node, kind byte, most int64) int64 {
	if kind == 'n' {
		return 0
	}
	if kind != '0' {
		p.fail(s, "%s is no number", n.Key)
		return 0
	}
	v, fault := countOf(s.Text(), most)
	if fault != "" {
		p.fail(s, "%s is "+fault, n.Key)
	}
	return v
}
