package signal

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	maxMessage  = 4 << 10          // bytes of a message
	maxTextWait = 15 * time.Minute // that a message may ask for
)

// body is what the error in a body says.
type body struct {
	meanings []meaning
	message  string // in lower case
	quotas   []string
	delay    time.Duration
}

// containers are the objects and lists of a body that have places below them. Nothing else is read,
// because servers quote requests in their errors.
// cloud.google.com/apis/design/errors, developers.google.com/workspace/drive/api/guides/handle-errors,
// 2026-11
var containers = map[string]bool{
	"": true, "error": true, "error.errors": true, "error.errors[]": true,
	"error.details": true, "error.details[]": true,
	"error.details[].violations": true, "error.details[].violations[]": true,
}

// codeFields are the fields of an error that state a code.
var codeFields = []string{"code", "errorcode", "type", "status", "reason", "__type"}

// readBody reads the error of a JSON body, which may break off. The error is the object under error,
// or else the body. The body may be a list, whose first item counts (Google, Salesforce).
func (r *response) readBody(b []byte) {
	values := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(bytes.TrimSpace(b), []byte("["))))
	values.UseNumber()
	found := make(map[string][]string)
	walk(values, "", found)
	root := ""
	if _, ok := found["error"]; ok {
		root = "error."
	}
	codes := found["error.errors[].reason"]
	for _, field := range codeFields {
		codes = append(codes, found[root+field]...)
	}
	for _, code := range codes {
		r.addCode(code)
	}
	for _, delay := range append(found["error.details[].retrydelay"], found[root+"retry_after"]...) {
		r.body.delay = max(r.body.delay, moment(delay, r.now())) // google.rpc.RetryInfo; Discord, in seconds
	}
	r.body.quotas = found["error.details[].violations[].quotaid"]
	message := strings.Join(append(found["error"], found[root+"message"]...), "\n")
	message = strings.TrimSpace(message)
	r.body.message = strings.ToLower(message[:min(len(message), maxMessage)])
	for _, p := range phrases {
		if strings.HasPrefix(r.body.message, p.text) ||
			r.status == http.StatusPaymentRequired && strings.Contains(r.body.message, p.text) {
			r.body.meanings = append(r.body.meanings, p.meaning)
		}
	}
}

// walk finds the values of containers by their places. It reports whether another value may follow.
func walk(values *json.Decoder, place string, found map[string][]string) bool {
	var value any
	if !containers[place] {
		if values.Decode(&value) != nil {
			return false
		}
	} else if token, err := values.Token(); err != nil {
		return false
	} else if open, ok := token.(json.Delim); ok {
		found[place] = append(found[place], "") // it is there
		return walkInside(values, place, open, found)
	} else {
		value = token
	}
	switch v := value.(type) {
	case string:
		found[place] = append(found[place], v)
	case json.Number:
		found[place] = append(found[place], v.String())
	}
	return true
}

// walkInside walks the members of an object or the items of a list.
func walkInside(values *json.Decoder, place string, open json.Delim, found map[string][]string) bool {
	for values.More() {
		inside := place + "[]"
		if open == '{' {
			key, err := values.Token()
			if err != nil {
				return false
			}
			name, _ := key.(string)
			inside = strings.TrimPrefix(place+"."+strings.ToLower(name), ".")
		}
		if !walk(values, inside, found) {
			return false
		}
	}
	_, err := values.Token()
	return err == nil
}

// addCode adds what a code means. Those of AWS have a namespace before '#' or behind ':'.
func (r *response) addCode(code string) {
	code = strings.ToLower(code[strings.LastIndexByte(code, '#')+1:])
	m, ok := codes[code]
	if !ok {
		code, _, _ = strings.Cut(code, ":")
		m, ok = codes[code]
	}
	if m == quota {
		if m = spent; r.status == http.StatusTooManyRequests {
			m = slow
		}
	}
	if ok {
		r.body.meanings = append(r.body.meanings, m)
	}
}

// says reports whether the error has a meaning.
func (r *response) says(m meaning) bool { return slices.Contains(r.body.meanings, m) }

// refused reports whether the server asks for fewer requests, and to wait.
func (r *response) refused(wait time.Duration) bool {
	if r.says(large) {
		return r.tooLarge()
	}
	switch r.status {
	case http.StatusTooManyRequests, statusOverloaded, statusCapacityExceeded:
		return true
	case http.StatusInternalServerError: // one request may break a server
		return r.says(loaded)
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return wait > 0 || r.says(slow) || r.says(loaded) // otherwise it may be one server of many
	case http.StatusForbidden: // GitHub and older APIs of Google
		return wait > 0 || r.says(blocked) || r.says(slow)
	case http.StatusBadRequest: // AWS and Linear
		return r.says(slow)
	}
	return false
}

// tooLarge reports whether the request alone is above a limit, or above what is left of the money.
func (r *response) tooLarge() bool {
	return r.says(large) && !r.says(spent) &&
		(r.status == http.StatusPaymentRequired || r.status == http.StatusTooManyRequests)
}

// ofResource reports whether a refusal is of a resource of GitHub such as search. A secondary limit
// is the account's.
func (r *response) ofResource() bool {
	return r.resource && r.ofGitHub() &&
		!strings.HasPrefix(r.body.message, secondaryLimit) &&
		slices.ContainsFunc(r.windows, func(w window) bool { return w.Name == "" && w.empty() })
}

// ofGitHub reports whether GitHub has sent the response.
func (r *response) ofGitHub() bool { return r.header[githubHeader] != nil }

// spent reports whether money, a quota, or the limit of a day is used up.
func (r *response) spent(refused bool) bool {
	switch {
	case r.says(spent):
		return true
	case r.says(large):
		return false
	case r.status == http.StatusPaymentRequired:
		return true
	case !refused:
		return false
	}
	for _, day := range days {
		isDay := func(text string) bool { return strings.Contains(strings.ToLower(text), day) }
		limit := strings.HasPrefix(r.body.message, "rate limit ") // OpenAI, Groq and OpenRouter begin so
		if limit && isDay(r.body.message) || slices.ContainsFunc(r.body.quotas, isDay) {
			return true
		}
	}
	return slices.ContainsFunc(r.windows, func(w window) bool { return w.empty() && w.long() })
}

// concernsModel reports whether a refusal is about the model of the request, and not about the
// account or the provider, as far as the response tells.
func (r *response) concernsModel() bool {
	named := strings.Contains(r.body.message, "model")
	switch {
	case r.status == http.StatusPaymentRequired, r.says(spent), r.says(blocked), r.deniesAccount():
		return false
	case len(r.body.quotas) > 0:
		return slices.ContainsFunc(r.body.quotas, func(q string) bool {
			return strings.Contains(strings.ToLower(q), "permodel")
		})
	case r.status >= http.StatusInternalServerError, r.status == statusCapacityExceeded, r.says(loaded):
		return named
	}
	return true
}

// deniesAccount reports whether one of Anthropic's limits refuses that is of all models.
func (r *response) deniesAccount() bool {
	whole, judged := false, false
	for i := range r.windows {
		switch w := &r.windows[i]; {
		case w.Name == unified:
			whole = w.denied
		case w.denied && slices.Contains(unifiedPeriods, w.Name):
			return true
		default:
			judged = judged || w.judged
		}
	}
	return whole && !judged
}
