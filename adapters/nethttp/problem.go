package nethttp

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// AboutBlank is the ProblemBase of problem details without a type of their own (RFC 9457, section 4.2.1).
const AboutBlank = "about:blank"

const draftProblemBase = "https://iana.org/assignments/http-problem-types#"

// problem is problem details (RFC 9457) with the extension of draft-ietf-httpapi-ratelimit-headers-10, section 6.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"`
}

func problemOf(a *Admission) problem {
	p := problem{Type: AboutBlank, Title: http.StatusText(a.status), Status: a.status}
	name, title := "", ""
	switch a.status {
	case http.StatusTooManyRequests:
		name, title = "quota-exceeded", "Quota Exceeded"
		p.Violated = a.Violated()
		word := "policy "
		if len(p.Violated) > 1 {
			word = "policies "
		}
		p.Detail = "Request quota for " + word + `"` + strings.Join(p.Violated, `", "`) + `" is exhausted.`
	case http.StatusServiceUnavailable:
		name, title = "temporary-reduced-capacity", "Temporary Reduced Capacity"
		p.Violated = a.Violated()
	case http.StatusBadRequest:
		p.Detail = "The request lacks what its rate limit is counted by."
	}
	if base := a.guard.cfg.ProblemBase; name != "" && base != AboutBlank {
		p.Type, p.Title = base+name, title
	}
	return p
}

func writeProblem(w http.ResponseWriter, r *http.Request, a *Admission) {
	body, err := json.Marshal(problemOf(a))
	if err != nil { // strings and a number always marshal
		body = []byte("{}")
	}
	body = append(body, '\n')
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(a.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
}
