package signal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const maxMessage = 4 << 10 // bytes of a message

// text is a string or a number of JSON. Anything else is empty.
type text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) != nil && (b[0] == '-' || '0' <= b[0] && b[0] <= '9') {
		s = string(b)
	}
	*t = text(s)
	return nil
}

// failure is an error in a body. It has the places where servers say what is wrong, and no others,
// because servers quote requests in their errors.
// cloud.google.com/apis/design/errors, developers.google.com/workspace/drive/api/guides/handle-errors,
// spec.graphql.org, developers.hubspot.com/docs/api/usage-details, 2026-11
type failure struct {
	Code, ErrorCode, Type, Status, Reason, PolicyName, X402Version text

	AWS            text `json:"__type"`
	Error, Message text

	RetryAfter    text `json:"retry_after"`       // of Discord, in seconds, as the next two
	ResetsIn      text `json:"resets_in_seconds"` // of Codex (earendil-works/pi#4172)
	EstimatedTime text `json:"estimated_time"`    // of Hugging Face, for a model that loads

	Errors []struct {
		Code, Type, Reason text
		Extensions         struct{ Code text }
	}
	Details []struct {
		RetryDelay text // google.rpc.RetryInfo
		Reason     text // google.rpc.ErrorInfo
		Violations []struct{ QuotaID text }
	}
}

// readBody reads the error of a body. In JSON that is the object under error, or else the body. The
// error of a 402 may be in another one (OpenRouter). The body may be a list, whose first item counts
// (Google, Salesforce). In XML it is the code (S3).
func (r *response) readBody(b []byte) {
	b = bytes.TrimSpace(b)
	if bytes.HasPrefix(b, []byte("<?xml")) || bytes.HasPrefix(b, []byte("<Error")) {
		_, code, _ := bytes.Cut(b[:min(len(b), maxMessage)], []byte("<Code>"))
		code, _, _ = bytes.Cut(code, []byte("<"))
		r.addCode(string(code))
		return
	}
	var first json.RawMessage
	if json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(b, []byte("[")))).Decode(&first) != nil {
		return
	}
	for depth := range 2 {
		var inner struct{ Error json.RawMessage }
		_ = json.Unmarshal(first, &inner) // it fills in what fits, as below
		if bytes.HasPrefix(inner.Error, []byte("{")) && (depth == 0 || r.status == http.StatusPaymentRequired) {
			first = inner.Error
		}
	}
	var f failure
	_ = json.Unmarshal(first, &f)
	r.readFailure(&f)
}

// readFailure adds what a failure says.
func (r *response) readFailure(f *failure) {
	codes := []text{
		f.Code, f.ErrorCode, f.Type, f.Status, f.Reason, f.AWS, "policy " + f.PolicyName, "x402 " + f.X402Version,
	}
	for _, e := range f.Errors {
		codes = append(codes, e.Code, e.Type, e.Reason, e.Extensions.Code)
	}
	for _, code := range codes {
		r.addCode(string(code))
	}
	r.code, _ = strconv.Atoi(string(f.Code))
	r.told = []string{string(f.RetryAfter), string(f.ResetsIn), string(f.EstimatedTime)}
	for _, d := range f.Details {
		r.told = append(r.told, string(d.RetryDelay))
		r.addCode(string(d.Reason))
		for _, v := range d.Violations {
			r.quotas += " " + strings.ToLower(string(v.QuotaID))
		}
	}
	message := strings.TrimSpace(string(cmp.Or(f.Error, f.Message)))
	r.message = strings.ToLower(message[:min(len(message), maxMessage)])
	for _, p := range phrases {
		beginning, rest, _ := strings.Cut(p.text, "*")
		if strings.HasPrefix(r.message, beginning) && strings.Contains(r.message, rest) ||
			r.status == http.StatusPaymentRequired && strings.Contains(r.message, p.text) {
			r.means[p.meaning] = true
		}
	}
}

// addCode adds what a code means. Those of AWS have a namespace before '#' or behind ':'.
func (r *response) addCode(code string) {
	code, _, _ = strings.Cut(code[strings.LastIndexByte(code, '#')+1:], ":")
	m := codes[strings.ToLower(code)]
	if m == quota {
		if m = spent; r.status == http.StatusTooManyRequests {
			m = slow
		}
	}
	r.means[m] = true
}

// ofDay reports whether the limit of a day or a longer time is used up.
func (r *response) ofDay() bool {
	said := r.quotas
	if strings.HasPrefix(r.message, "rate limit ") { // OpenAI, Groq and OpenRouter begin so
		said += r.message
	}
	return slices.ContainsFunc(days, func(day string) bool { return strings.Contains(said, day) }) ||
		slices.ContainsFunc(r.windows, func(w Remaining) bool { return w.Remaining == 0 && w.Window >= 24*time.Hour })
}

// ofRoute reports whether a refusal is of a resource of GitHub such as search, or of a bucket of
// Discord's. A secondary limit is the account's.
func (r *response) ofRoute() bool {
	apart := func(w Remaining) bool { return w.Name != requests && w.Remaining == 0 }
	return (r.header[githubHeader] != nil || r.header[discordHeader] != nil) && r.header[globalHeader] == nil &&
		!strings.HasPrefix(r.message, secondaryLimit) && slices.ContainsFunc(r.windows, apart)
}

// ofGateway reports whether the status is one of a gateway, which is before all models.
func (r *response) ofGateway() bool {
	return http.StatusBadGateway <= r.status && r.status <= http.StatusGatewayTimeout
}

// deniesAccount reports whether one of Anthropic's limits refuses that is of all models.
func (r *response) deniesAccount() bool {
	status := func(name string) string { return r.header.Get(subscription + name + "-Status") }
	return status("-5h") == rejected || status("-7d") == rejected || status("") == rejected && status("-5h") == ""
}
