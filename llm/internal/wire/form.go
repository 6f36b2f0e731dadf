package wire

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
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

// maxFields is how much of the fields of a form, other than files, is read.
const maxFields = 1 << 20

// form reads a multipart form as the JSON body that has its fields as members. It refuses bytes
// before the form, which may be the JSON document that a server reads.
func (p *requestParser) form(f *Format, boundary string) error {
	broken := fmt.Errorf("%w: it is no multipart form", ErrRequest)
	if !bytes.HasPrefix(bytes.TrimLeft(p.body, "\r\n"), []byte("--"+boundary)) {
		return broken
	}
	parts := multipart.NewReader(bytes.NewReader(p.body), boundary)
	var members []any
	left := int64(maxFields)
	for {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return broken
		}
		name, value := part.FormName(), any(struct{}{}) // a file decides nothing
		i := slices.IndexFunc(f.request.Kids, func(n *node) bool { return strings.EqualFold(n.Key, name) })
		switch {
		case part.FileName() != "":
			p.request.Files++
		case i >= 0:
			text, err := io.ReadAll(io.LimitReader(part, left))
			if err != nil {
				return broken
			}
			left -= int64(len(text))
			value = valueOf(f.request.Kids[i], string(text))
		}
		if i >= 0 {
			members = append(members, name, value)
		}
	}
	p.body = object(members...)
	err := p.document(f)
	p.request.at = places{} // which are none of the form's
	return err
}

// valueOf returns the value of a member that a field of a form states.
func valueOf(n *node, text string) any {
	switch n.Role {
	case askStream:
		if stream, err := strconv.ParseBool(cmp.Or(strings.ToLower(text), "false")); err == nil {
			return stream
		}
	case askChoices:
		if choices, fault := countOf([]byte(text), maxChoices); fault == "" {
			return choices
		}
	}
	return text
}

// countOf reads an integer between 0 and most. It returns what is wrong with it.
func countOf(text []byte, most int64) (n int64, fault string) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	switch {
	case n > most:
		return 0, fmt.Sprintf("more than %d", most)
	case err != nil || text[0] < '0':
		return 0, "no integer of at least 0"
	}
	return n, ""
}
