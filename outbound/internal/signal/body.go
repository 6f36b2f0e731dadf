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
	maxDepth   = 12      // of the values in a body
	maxMessage = 4 << 10 // bytes of all messages
)

// body is what the error in a body says.
type body struct {
	meanings []meaning
	message  string // in lower case
	quotas   []string
	delay    time.Duration
}

// readBody walks the values of a JSON body, which may break off. The names of an error's fields say
// enough, wherever they stand: errors stand in objects, in arrays (Gemini) and beside each other.
func (r *response) readBody(b []byte) {
	values := json.NewDecoder(bytes.NewReader(b))
	values.UseNumber()
	r.walk(values, "", 0)
	for _, p := range phrases {
		if strings.Contains(r.body.message, p.text) {
			r.body.meanings = append(r.body.meanings, p.meaning)
		}
	}
}

// walk reads one value, which stands under a name. It reports whether another value may follow.
func (r *response) walk(values *json.Decoder, name string, depth int) bool {
	token, err := values.Token()
	if err != nil || depth > maxDepth {
		return false
	}
	switch v := token.(type) {
	case json.Delim:
		inside := name
		for values.More() {
			if v == '{' {
				key, err := values.Token()
				if err != nil {
					return false
				}
				inside, _ = key.(string)
			}
			if !r.walk(values, inside, depth+1) {
				return false
			}
		}
		_, err := values.Token()
		return err == nil
	case string:
		r.field(name, v)
	case json.Number:
		r.field(name, v.String())
	}
	return true
}

// field reads one field of an error.
func (r *response) field(name, value string) {
	switch name = strings.ToLower(name); name {
	case "code", "errorcode", "type", "status", "reason", "__type":
		r.addCode(value)
	case "message":
		if r.status == http.StatusBadRequest && !strings.HasPrefix(strings.ToLower(value), noCredit) {
			return // it may quote what a user wrote
		}
		if room := maxMessage - len(r.body.message); room > 0 {
			r.body.message += strings.ToLower(value[:min(len(value), room)]) + "\n"
		}
	case "quotaid":
		r.body.quotas = append(r.body.quotas, strings.ToLower(value))
	case "retrydelay", "retry_after": // google.rpc.RetryInfo; Discord, in seconds
		r.body.delay = max(r.body.delay, moment(value, r.now()))
	default:
		// OpenRouter states the headers of the model's provider in the error.
		if strings.HasPrefix(name, "x-ratelimit-") {
			r.readHeader(http.CanonicalHeaderKey(name), []string{value})
		}
	}
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
	case http.StatusServiceUnavailable: // without a wait it may be one broken server of many
		return wait > 0 || r.says(slow)
	case http.StatusForbidden: // GitHub and older APIs of Google
		return wait > 0 || r.says(blocked) || r.says(slow)
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
		!strings.Contains(r.body.message, "secondary rate limit") &&
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
		isDay := func(text string) bool { return strings.Contains(text, day) }
		if isDay(r.body.message) || slices.ContainsFunc(r.body.quotas, isDay) {
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
			return strings.Contains(q, "permodel")
		})
	case r.status == http.StatusServiceUnavailable, r.status == statusOverloaded,
		r.status == statusCapacityExceeded, r.says(loaded):
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
