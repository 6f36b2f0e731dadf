package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
)

// boundaryOf returns the boundary of a multipart form, or "" if the body is none.
func boundaryOf(h http.Header) string {
	media, parameters, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || media != "multipart/form-data" {
		return ""
	}
	return parameters["boundary"]
}

// maxField is the longest field of a form, other than a file, that is read.
const maxField = 1 << 20

// form reads a multipart form. Its fields mean what the members of a JSON body do. It refuses bytes
// before the form, which may be the JSON document that a server reads.
func (p *requestParser) form(f *Format, boundary string) error {
	if !bytes.HasPrefix(bytes.TrimLeft(p.body, "\r\n"), []byte("--"+boundary)) {
		return fmt.Errorf("%w: it is no multipart form", ErrRequest)
	}
	parts := multipart.NewReader(bytes.NewReader(p.body), boundary)
	seen := make(map[string]bool)
	for {
		part, err := parts.NextRawPart()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%w: it is no multipart form", ErrRequest)
		}
		n, err := memberOf(f, part, seen)
		switch {
		case err != nil:
			return err
		case part.FileName() != "":
			p.request.Files++
			continue
		case n == nil:
			continue
		}
		value, err := io.ReadAll(io.LimitReader(part, maxField))
		if err != nil {
			return fmt.Errorf("%w: it is no multipart form", ErrRequest)
		}
		if fault := p.field(n, value); fault != "" {
			return fmt.Errorf("%w: %s", ErrRequest, fault)
		}
	}
}

// memberOf returns the member that a part of a form means, or nil. One that decides something may
// stand once and is no file, since servers disagree on the others.
func memberOf(f *Format, part *multipart.Part, seen map[string]bool) (*node, error) {
	name := part.FormName()
	i := slices.IndexFunc(f.request.Kids, func(n *node) bool {
		return strings.EqualFold(n.Key, name)
	})
	if i < 0 {
		return nil, nil
	}
	n := f.request.Kids[i]
	if n.Role < askModel || n.Role > lastAsk {
		return n, nil
	}
	switch {
	case n.Key != name:
		return nil, fmt.Errorf("%w: %s is spelt in another case", ErrRequest, n.Key)
	case seen[n.Key]:
		return nil, fmt.Errorf("%w: %s comes twice", ErrRequest, n.Key)
	case part.FileName() != "":
		return nil, fmt.Errorf("%w: %s is a file", ErrRequest, n.Key)
	}
	seen[n.Key] = true
	return n, nil
}

// field reads a field of a form, and returns what is wrong with it.
func (p *requestParser) field(n *node, value []byte) (fault string) {
	q := &p.request
	switch n.Role {
	case askModel:
		q.Model = string(value)
		return faultOfModel(q.Model)
	case askModels:
		p.others = append(p.others, string(value))
		return faultOfModel(string(value))
	case askStream:
		text := strings.ToLower(string(value))
		q.Stream = text == "true" || text == "1"
		if !q.Stream && text != "false" && text != "0" && text != "" {
			return n.Key + " is no boolean"
		}
	case askChoices:
		choices, fault := countOf(value, maxChoices)
		if fault != "" {
			return n.Key + " is " + fault
		}
		q.Choices = choices
	case readText, readTokens:
		q.PromptBytes += int64(len(value))
		q.weight.add(value)
		q.weight.end()
	}
	return ""
}

// countOf reads an integer between 0 and most. It returns what is wrong with it.
func countOf(text []byte, most int64) (n int64, fault string) {
	if len(text) == 0 {
		return 0, "no integer of at least 0"
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, "no integer of at least 0"
		}
		if n = n*10 + int64(c-'0'); n > most {
			return 0, fmt.Sprintf("more than %d", most)
		}
	}
	return n, ""
}
