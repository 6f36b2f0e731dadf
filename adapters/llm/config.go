package llm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate/adapters/llm/internal/wire"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Config configures a Meter.
type Config struct {
	// Guard is the guard of every request. Its Rules are limits besides the budgets, such as requests
	// a minute, and its Concurrency caps streams. Guard.Gate is required. Rules, Blocks and Budgets
	// are at most 16 together.
	//
	// Guard.Dialect nil speaks as the server does that the client expects: OpenAI for OpenAI's
	// formats, Anthropic for Anthropic's. Any other Dialect holds for every request, also
	// nethttp.Draft11.
	Guard nethttp.Config
	// RetryWithin is the longest wait that a client should sit out; see OpenAI.RetryWithin. Zero means
	// a minute. It also tells a stream that ends early whether its budget is spent. A Guard.Dialect
	// has its own.
	RetryWithin time.Duration
	// Budgets are the limits on tokens and on money. At least one is required.
	Budgets []Budget
	// Models tells what tokens of each model count, by the name in the request. It is required for a
	// budget of money. If it is empty, any model is known, and each of its tokens is one unit.
	Models map[string]Model
	// UnknownModel says what becomes of a request for a model that is not in Models. The zero value
	// refuses it.
	UnknownModel UnknownModel
	// MaxBody is the longest body of a request in bytes, at most 1e9. A longer one is refused with
	// 413. Zero means 8 MiB. The body is held in memory until it has been sent on.
	MaxBody int64
	// MaxOutput is the largest number of output tokens that the estimate of one answer reserves,
	// whatever the request asks for. It is at most 1e9. Zero means 4,096. Model.MaxOutput replaces it.
	MaxOutput int64
	// Estimate returns the estimate of a request in place of the built-in one, such as by a
	// tokenizer. It must be safe for concurrent use and must not keep or change the body. An error
	// refuses the request with 400 if it is an ErrRequest, and otherwise with 500. Nil estimates by
	// the number of bytes; see Meter.
	Estimate func(r *http.Request, q Request, body []byte) (Usage, error)
	// ChargeEvery is how many more tokens of output a stream is charged for while it runs, whenever it
	// has used up those that it has paid for: at first its estimate, or the part of it that the
	// budgets have room for at their limits. It is at most 1e9. Zero charges them at the end.
	ChargeEvery int64
	// Overrun says what becomes of a stream whose running charge a budget denies. The zero value lets
	// it go on.
	Overrun Overrun
	// Abort says what becomes of a response whose client has left. The zero value stops it.
	Abort Abort
	// DrainFor is the longest time for which AbortDrain reads on. Zero means 5 minutes.
	DrainFor time.Duration
	// KeepBody passes every request body on unchanged. Otherwise the Meter sets
	// stream_options.include_usage in a streamed chat that does not, and hides from the client the
	// chunk that the server adds for it.
	KeepBody bool
	// Other handles requests of no known format, such as a list of models. They pass neither the
	// guard nor the budgets. Nil answers 404.
	Other http.Handler
	// Observe receives a *ResponseEvent for every admitted request, after its budgets are settled.
	// The context is that of the request. It must be fast and safe for concurrent use. Nil observes
	// nothing. An event is valid until Observe returns.
	Observe func(context.Context, core.Event)
}

// Budget is a limit on what requests use.
type Budget struct {
	// Policy names the limit. It is required. Its Unit says what counts: UnitTokens, UnitInputTokens,
	// UnitOutputTokens or UnitMicroDollars. Its Hold is required, because without it a process that
	// dies would leave the estimates of its streams spent. It is renewed while a request runs, so 30
	// seconds suit most.
	Policy *core.Policy
	// Key derives whose budget it is. It is required.
	Key keyfunc.Func
	// NoKey says what happens to a request without a key. The zero value refuses it.
	NoKey nethttp.NoKey
	// Limit returns the limit of a request; see nethttp.Rule.Limit. Nil is that of the policy.
	Limit func(*http.Request) (core.Algorithm, error)
	// Skip skips the budget for the requests for which it returns true. Nil skips none.
	Skip func(*http.Request) bool
}

// UnknownModel says what becomes of a request for a model that is not in Config.Models.
type UnknownModel uint8

const (
	// UnknownModelRefuse refuses it with 404.
	UnknownModelRefuse UnknownModel = iota
	// UnknownModelDearest counts under each budget what the dearest model would.
	UnknownModelDearest
)

// String returns "refuse" or "dearest".
func (u UnknownModel) String() string { return nameOf([]string{"refuse", "dearest"}, int(u)) }

// Overrun says what becomes of a stream that outgrows its budget.
type Overrun uint8

const (
	// OverrunDebt lets it go on. What it uses beyond the budget is a debt, which later requests wait
	// for.
	OverrunDebt Overrun = iota
	// OverrunEnd ends it between two events, with an error of the server's own format. A stream with a
	// Content-Encoding goes on as with OverrunDebt.
	OverrunEnd
)

// String returns "debt" or "end".
func (o Overrun) String() string { return nameOf([]string{"debt", "end"}, int(o)) }

// Abort says what becomes of a response whose client has left.
type Abort uint8

const (
	// AbortStop stops it. It pays its input and the output that was seen.
	AbortStop Abort = iota
	// AbortDrain reads on to its end, which tells the usage, and passes nothing on. It keeps its slot
	// until then, and stops if that is lost.
	AbortDrain
)

// String returns "stop" or "drain".
func (a Abort) String() string { return nameOf([]string{"stop", "drain"}, int(a)) }

// nameOf returns the name of a value of an enumeration.
func nameOf(names []string, value int) string {
	if value < len(names) {
		return names[value]
	}
	return "unknown"
}

// complete checks the configuration and fills in the defaults. It returns every fault at once.
func (cfg Config) complete() (Config, error) {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("llm: Config."+format, args...))
	}
	if len(cfg.Budgets) == 0 {
		fault("Budgets is empty")
	}
	if err := cfg.checkGuard(fault); err != nil {
		errs = append(errs, err)
	}
	money := slices.ContainsFunc(cfg.Budgets, func(b Budget) bool {
		return b.Policy != nil && b.Policy.Unit() == core.UnitMicroDollars
	})
	for name, m := range cfg.Models {
		m.check(fmt.Sprintf("Models[%q]", name), money, fault)
	}
	for _, n := range []struct {
		name  string
		value *int64
		zero  int64
	}{
		{"MaxBody", &cfg.MaxBody, 8 << 20}, {"MaxOutput", &cfg.MaxOutput, 4096},
		{"ChargeEvery", &cfg.ChargeEvery, 0},
	} {
		if *n.value < 0 || *n.value > wire.MaxCount {
			fault("%s is %d: it must be between 0 and %d", n.name, *n.value, wire.MaxCount)
		}
		*n.value = cmp.Or(*n.value, n.zero)
	}
	if cfg.RetryWithin < 0 {
		fault("RetryWithin is %v: it must not be negative", cfg.RetryWithin)
	}
	if cfg.DrainFor < 0 {
		fault("DrainFor is %v: it must not be negative", cfg.DrainFor)
	}
	if cfg.DrainFor > 0 && cfg.Abort != AbortDrain {
		fault("DrainFor is %v, and Abort is not AbortDrain", cfg.DrainFor)
	}
	cfg.DrainFor = cmp.Or(cfg.DrainFor, 5*time.Minute)
	enum := func(name string, value, last uint8) {
		if value > last {
			fault("%s is %d: it must be at most %d", name, value, last)
		}
	}
	enum("UnknownModel", uint8(cfg.UnknownModel), uint8(UnknownModelDearest))
	enum("Overrun", uint8(cfg.Overrun), uint8(OverrunEnd))
	enum("Abort", uint8(cfg.Abort), uint8(AbortDrain))
	if cfg.Overrun == OverrunEnd && cfg.ChargeEvery == 0 {
		fault("Overrun is OverrunEnd, and ChargeEvery is 0: no stream would be charged while it runs")
	}
	cfg.Budgets = slices.Clone(cfg.Budgets)
	cfg.Models = maps.Clone(cfg.Models)
	return cfg, errors.Join(errs...)
}

// checkGuard checks the budgets, and the guard with the rules that they become.
func (cfg *Config) checkGuard(fault func(string, ...any)) error {
	names := make(map[string]bool)
	for i, r := range cfg.Guard.Rules {
		if r.Policy == nil {
			continue
		}
		names[r.Policy.Name()] = true
		if r.Policy.Unit() != core.UnitRequests && r.Cost == nil {
			fault("Guard.Rules[%d].Policy counts %v, and Cost is nil: make it one of Budgets",
				i, r.Policy.Unit())
		}
	}
	guard := cfg.Guard
	guard.Rules = slices.Clone(guard.Rules)
	for i, b := range cfg.Budgets {
		at := fmt.Sprintf("Budgets[%d]", i)
		b.check(at, len(cfg.Models) > 0, fault)
		switch {
		case b.Policy == nil || b.Policy.Name() == "":
			continue
		case names[b.Policy.Name()]:
			fault("%s.Policy is named %q, like that of another budget or rule", at, b.Policy.Name())
			continue
		}
		names[b.Policy.Name()] = true
		guard.Rules = append(guard.Rules, nethttp.Rule{Policy: b.Policy, Key: keyfunc.RemoteIP()})
	}
	if len(guard.Rules) == 0 {
		if guard.Gate == nil {
			fault("Guard.Gate is nil")
		}
		return nil
	}
	if _, err := nethttp.NewGuard(guard); err != nil {
		return fmt.Errorf("llm: Config.Guard: %w", err)
	}
	return nil
}

func (b *Budget) check(at string, models bool, fault func(string, ...any)) {
	if b.NoKey > nethttp.NoKeySkip {
		fault("%s.NoKey is %d: it must be NoKeyRefuse or NoKeySkip", at, b.NoKey)
	}
	if b.Key == nil {
		fault("%s.Key is nil: say whose budget it is", at)
	}
	if b.Policy == nil || b.Policy.Name() == "" {
		fault("%s.Policy is missing: core.NewPolicy must make it", at)
		return
	}
	if b.Policy.Hold() == 0 {
		fault("%s.Policy has no Hold: a process that dies would leave its estimates spent", at)
	}
	switch b.Policy.Unit() {
	case core.UnitRequests:
		fault("%s.Policy counts requests: make it one of Guard.Rules, or set its Unit", at)
	case core.UnitMicroDollars:
		if !models {
			fault("%s.Policy counts money, and Models, which has the prices, is empty", at)
		}
	}
}
