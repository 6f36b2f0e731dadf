package llm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/llm/internal/wire"
	"github.com/headgate/headgate/outbound"
)

// OutboundConfig configures an Outbound. The fields that Config has too mean the same there.
type OutboundConfig struct {
	// Models has what requests to each model cost. A model that is neither here nor in Prices costs
	// as much as the dearest.
	Models map[string]Model
	// Prices has models of files beside Models. It may be nil.
	Prices *Prices
	// StatedCost decides about bills that servers state. The zero value ignores them.
	StatedCost StatedCost
	// MaxBody is the longest body that is measured, in bytes, at most 1e9. Zero means 8 MiB. The body is
	// held in memory while the request runs.
	MaxBody int64
	// MaxOutput is the number of output tokens that the estimate of one answer has for a request that
	// states no cap. It is at most 1e9. Zero means 4,096. Model.MaxOutput replaces it.
	MaxOutput int64
	// CountsCap says that the provider counts the cap on the output of a request when it begins, and
	// gives nothing back, as OpenAI and Azure do (platform.openai.com/docs/guides/rate-limits and
	// learn.microsoft.com/azure/ai-foundry/openai/how-to/quota, November 2026). Then the estimate has
	// the whole cap, and stays. Otherwise the usage that the response states replaces the estimate.
	CountsCap bool
	// KeepBody sends every body unchanged. Otherwise the Outbound sets stream_options.include_usage in
	// a streamed chat that does not, unless its headers sign or hash the body, and hides from the caller
	// the chunk that the server adds for it.
	KeepBody bool
	// Routes are further paths of known formats.
	Routes []Route
}

// Outbound is an outbound.Meter: it reads the model of requests to language models, and their tokens
// or money under rules whose policies count these. NewOutbound makes one. It is safe for concurrent
// use.
//
// It estimates as a Meter does, and corrects its estimates by what the responses state. A request of
// no known format, such as one for a list of models, is not measured: it has no model, so skip it in
// rules with the key outbound.ByModel.
type Outbound struct {
	cfg   OutboundConfig
	meter *Meter // without a guard
}

var _ outbound.Meter = (*Outbound)(nil)

// NewOutbound returns an Outbound, or every fault of the configuration at once.
func NewOutbound(cfg OutboundConfig) (*Outbound, error) {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("llm: OutboundConfig."+format, args...))
	}
	for name, m := range cfg.Models {
		m.check(fmt.Sprintf("Models[%q]", name), false, fault)
	}
	c := Config{
		Models: maps.Clone(cfg.Models), Prices: cfg.Prices, StatedCost: cfg.StatedCost,
		MaxBody: cfg.MaxBody, MaxOutput: cfg.MaxOutput, KeepBody: cfg.KeepBody,
		Routes: slices.Clone(cfg.Routes), UnknownModel: UnknownModelDearest,
	}
	c.completeNumbers(fault)
	c.checkChoices(fault)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	m := newMeter(c)
	return &Outbound{cfg: cfg, meter: m}, nil
}

// Measure implements outbound.Meter. It reads the body of a request of a known format, and puts it
// back so that it can be sent again. A body that is malformed, encoded or too long is sent
// unmeasured, and so is one that names no model, because it may name a stored prompt.
func (o *Outbound) Measure(r *http.Request) (outbound.Measure, error) {
	t, ok := wire.Find(r, o.meter.routes)
	if !ok {
		return nil, nil
	}
	body, whole, err := o.read(r)
	if err != nil || !whole {
		return nil, err
	}
	x, err := o.meter.open(r, t, body)
	if err != nil {
		replay(r, body, false)
		return nil, nil
	}
	q := &x.request
	if o.cfg.CountsCap {
		x.estimate.Output = x.guess.output
		if q.MaxOutput > 0 && t.Format.HasOutput() {
			x.estimate.Output = q.MaxOutput * q.Choices
		}
	}
	m := &measure{call: x, counts: o.cfg.CountsCap}
	if q.HidesUsage() && !o.cfg.KeepBody && !signed(r.Header) {
		change := q.UsageChange(body)
		body, x.hides = change.Apply(body), true
		m.given = func() []byte { return change.Undo(body) }
	}
	replay(r, body, x.hides)
	return m, nil
}

// read reads the whole body of a request, and closes it. It puts back one that it cannot read whole.
func (o *Outbound) read(r *http.Request) (read []byte, whole bool, err error) {
	if r.Body == nil {
		return nil, true, nil
	}
	if !plain(r.Header) {
		return nil, false, nil
	}
	most := o.meter.cfg.MaxBody
	var body bytes.Buffer
	body.Grow(int(max(0, min(r.ContentLength, most))) + bytes.MinRead + int(wire.UsageBytes))
	if _, err = body.ReadFrom(io.LimitReader(r.Body, most+1)); err != nil {
		_ = r.Body.Close() // it has failed
		return nil, false, fmt.Errorf("llm: read the body: %w", err)
	}
	if int64(body.Len()) > most {
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(&body, r.Body), r.Body}
		return nil, false, nil
	}
	_ = r.Body.Close() // it was read
	return body.Bytes(), true, nil
}

// signatures are headers that sign the body of a request, or hash it.
var signatures = []string{"Content-Md5", "Content-Digest", "Digest", "Signature", "X-Amz-Content-Sha256"}

// signed reports whether a request with these headers is refused if its body changes.
func signed(h http.Header) bool {
	scheme, _, _ := strings.Cut(h.Get("Authorization"), " ")
	return strings.HasPrefix(scheme, "AWS4-") || strings.EqualFold(scheme, "Digest") ||
		strings.EqualFold(scheme, "Signature") ||
		slices.ContainsFunc(signatures, func(name string) bool { return h[name] != nil })
}

// replay gives a request a body of bytes that can be had again. With hides the server must not encode
// the response, because no chunk of an encoded one can be hidden.
func replay(r *http.Request, body []byte, hides bool) {
	r.ContentLength, r.TransferEncoding = int64(len(body)), nil
	if hides && r.Header.Get("Accept-Encoding") != "" {
		r.Header = r.Header.Clone()
		r.Header.Set("Accept-Encoding", "identity")
	}
	r.GetBody = func() (io.ReadCloser, error) {
		if len(body) == 0 {
			return http.NoBody, nil // anything else has an unknown length
		}
		return io.NopCloser(bytes.NewReader(body)), nil
	}
	r.Body, _ = r.GetBody() // cannot fail
}
