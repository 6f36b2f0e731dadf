package wire

import (
	"encoding/json"

	"github.com/headgate/headgate/llm/internal/jsonscan"
)

// modelPaths is the table that finds the name of the model.
var modelPaths = &node{Role: askBody, Kids: []*node{{Key: "model", Role: askModel}}}

// SetModel returns the body of a request with another model. Every other byte stays as it is. It
// reports false if the body names no model. It leaves body itself as it is.
func SetModel(body []byte, model string) (changed []byte, ok bool) {
	var f modelFinder
	s := jsonscan.New(modelPaths, &f)
	s.Scan(body)
	name, err := json.Marshal(model)
	if !s.Finish() || !f.model.found || err != nil {
		return body, false
	}
	changed = make([]byte, 0, len(body)+len(name))
	changed = append(append(changed, body[:f.model.from]...), name...)
	return append(changed, body[f.model.to:]...), true
}

// modelFinder is the visitor that finds the name of the model.
type modelFinder struct{ model place }

func (f *modelFinder) Key(*jsonscan.Scanner, *node)         {}
func (f *modelFinder) Begin(*jsonscan.Scanner, *node, byte) {}
func (f *modelFinder) End(*jsonscan.Scanner, *node)         {}

func (f *modelFinder) Scalar(s *jsonscan.Scanner, n *node, kind byte) {
	if n.Role == askModel && kind == '"' {
		f.model = place{from: s.Start(), to: s.Offset() + 1, found: true}
	}
}
