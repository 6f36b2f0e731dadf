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
	var f finder
	s := jsonscan.New(modelPaths, &f)
	s.Scan(body)
	name, err := json.Marshal(model)
	if !s.Finish() || f.model.kind != '"' || err != nil {
		return body, false
	}
	changed = make([]byte, 0, len(body)+len(name))
	changed = append(append(changed, body[:f.model.from]...), name...)
	return append(changed, body[f.model.to:]...), true
}
