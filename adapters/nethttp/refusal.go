package nethttp

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
)

// Refusal is the body of a refusal, and what Draft11, Legacy and None have in common as Dialects. The
// zero value is problem details (RFC 9457) with the types and
// the extension of draft-ietf-httpapi-ratelimit-headers-11, and with the seconds of Retry-After in
// the member retryAfter.
type Refusal struct {
	// PlainText is one line of text in place of problem details.
	PlainText bool
	// ProblemBase is the prefix of the type of problem details; the type's name in the draft follows
	// it. It is the draft's own prefix if empty. AboutBlank omits the type.
	ProblemBase string
}

// Status returns the same status.
func (Refusal) Status(status int) int { return status }

// WriteRefusal answers with problem details or a line of text.
func (f Refusal) WriteRefusal(w http.ResponseWriter, r *http.Request, a *Admission) {
	h := w.Header()
	var body []byte
	if f.PlainText {
		h.Set("Content-Type", "text/plain; charset=utf-8")
		body = []byte(cmp.Or(a.Detail(), a.StatusText()))
	} else {
		h.Set("Content-Type", "application/problem+json")
		body = marshal(f.problem(a, h))
	}
	body = append(body, '\n')
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(a.Status())
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
}

func marshal(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil { // strings and a number always marshal
		return []byte("{}")
	}
	return body
}

// AboutBlank is the ProblemBase of problem details without a type of their own (RFC 9457,
// section 4.2.1).
const AboutBlank = "about:blank"

const draftProblemBase = "https://iana.org/assignments/http-problem-types#"

type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"`
	After    int64    `json:"retryAfter,omitempty"`
}

func (f Refusal) problem(a *Admission, h http.Header) problem {
	p := problem{
		Type: AboutBlank, Title: a.StatusText(), Status: a.Status(), Detail: a.Detail(), Violated: a.Violated(),
	}
	name, title := "", ""
	switch {
	case a.denied == blocked:
		name, title = "abnormal-usage-detected", "Abnormal Usage Detected"
	case a.overloaded:
		name, title = "temporary-reduced-capacity", "Temporary Reduced Capacity"
	case a.Full() != nil, a.denied == exhausted:
		name, title = "quota-exceeded", "Quota Exceeded"
	} // the draft has no type for other denials: no quota is exceeded
	if name != "" && f.ProblemBase != AboutBlank {
		p.Type, p.Title = cmp.Or(f.ProblemBase, draftProblemBase)+name, title
	}
	// An outer Guard or a handler around it may have stated a longer wait than this Guard.
	p.After, _ = strconv.ParseInt(h.Get("Retry-After"), 10, 64)
	return p
}
