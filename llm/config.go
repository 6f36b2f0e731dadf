package llm

import (
	"context"
	"net/http"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
)

// Config configures a Meter.
type Config struct {
	// Guard guards every request. Its Rules are limits besides the budgets, such as requests a
	// minute. Its Slot caps streams. Guard.Gate is required. Rules, Blocks and Budgets are
	// at most 16 together.
	//
	// With a nil Guard.Dialect the Meter speaks as the server does that the client expects: OpenAI
	// for OpenAI's formats, Anthropic for Anthropic's. The clients of other formats get the errors
	// of their servers, and the headers of OpenAI. Any other Dialect, such as nethttp.Draft11,
	// serves every request.
	Guard nethttp.Config
	// RetryWithin is the longest wait that a client should sit out; see OpenAI.RetryWithin. Zero
	// means a minute. It also decides what error a stream that ends early has. A Guard.Dialect has
	// its own.
	RetryWithin time.Duration
	// Budgets are the limits on tokens and on money. At least one is required.
	Budgets []Budget
	// Models has what requests to each model cost, by its name in the request or the response. The
	// one that the response names counts, if it is here; see Bill.Model. A budget of money needs
	// Models or Prices. Without both, the Meter accepts any model.
	Models map[string]Model
	// UnknownModel decides about a request for a model that is in neither Models nor Prices. The
	// zero value refuses it.
	UnknownModel UnknownModel
	// Prices has models of files beside Models. One of Models replaces that of the same name whole.
	// The output of a model is estimated by MaxOutput, or by what the file says it can write if that
	// is less. One of Models also replaces that of a version of its model, and of the model behind its
	// name in a path. The Meter does not close them. It may be nil.
	Prices *Prices
	// Tariff returns the tariff of a model in place of that in Models, such as one that changes with
	// the hour. The labels are those of Bill, and for an estimate those of the request. The time is that of
	// the request, in UTC. False means Models. A Tariff that is not valid is as false, and reported;
	// see ResponseEvent.Unknown. It must be fast and safe for concurrent use. It may be nil.
	Tariff func(model string, labels map[string]string, at time.Time) (Tariff, bool)
	// StatedCost decides about bills that servers state. The zero value ignores them.
	StatedCost StatedCost
	// Downgrade returns a cheaper model for a request that a budget or a rule denies, or "" to refuse
	// it. RequestFrom tells what it asks for, and denied.Denials which limits deny it. The Meter then
	// decides once more, with the keys, limits and prices of that model. If it admits the request, it
	// changes the model in the path and in the body, where they have one, and nothing else, and names
	// it to the client in ModelHeader. Otherwise it refuses the request, by the limits of that model.
	// A model that would be refused as unknown is not taken. Downgrade must be safe for concurrent
	// use. Nil refuses.
	//
	// A request that a block or a cap refuses is not downgraded, and neither is one whose model is in
	// a form, or one that names several. Guard.Reconsider must be nil.
	Downgrade func(r *http.Request, denied *nethttp.Admission) (model string)
	// MaxBody is the longest body of a request in bytes, at most 1e9. The Meter refuses a longer
	// one with 413. Zero means 8 MiB. The body is held in memory until it has been sent on.
	MaxBody int64
	// MaxBodies is the most memory in bytes that the bodies of all requests take at a time. A
	// request whose body would take more is refused with 503, or StatusOverloaded, and a
	// Retry-After of a second. A body takes up to twice what has come of it. Several bodies of one
	// Guard.Scope, or else of one key of the first budget, take no more than they leave. These
	// functions are asked once before the body is read, for a request without a model. Zero means
	// 256 MiB, or MaxBody if that is more. It is at least MaxBody.
	//
	// A body must come within 10 seconds and a second for each 16 KiB of it. A slower one is refused
	// with 408, if the ResponseWriter can set the deadline of a read.
	MaxBodies int64
	// MaxOutput is the number of output tokens that the estimate of one answer has for a request that
	// states no cap. It is at most 1e9. Zero means 4,096. Model.MaxOutput replaces it.
	MaxOutput int64
	// Estimate returns the estimate of a request in place of the built-in one, for example by a
	// tokenizer. It must be safe for concurrent use and must not keep or change the body. An error
	// refuses the request with 400 if it is an ErrRequest, whose text the client reads, and with 500
	// otherwise. Nil estimates by the number of bytes; see Meter.
	Estimate func(r *http.Request, q Request, body []byte) (Usage, error)
	// ChargeEvery is the number of output tokens for which a running stream is charged at a time,
	// once it has used up those it has paid for: at first its estimate, or the part of it that the
	// budgets have room for at their limits. It is at most 1e9. Zero charges them at the end.
	ChargeEvery int64
	// Overrun decides about a stream whose running charge a budget denies. The zero value lets it
	// go on.
	Overrun Overrun
	// Abort decides about a response whose client has left. The zero value stops it.
	Abort Abort
	// DrainFor is the longest time for which AbortDrain reads on. Zero means 5 minutes.
	DrainFor time.Duration
	// KeepBody passes every request body on unchanged. Otherwise the Meter sets
	// stream_options.include_usage in a streamed chat that does not, and hides from the client the
	// chunk that the server adds for it.
	KeepBody bool
	// Routes are further paths of the formats that a Meter knows. A Meter asks them in order, and
	// then those of the formats.
	Routes []Route
	// Other handles requests of no known format, such as a list of models. They pass neither the
	// guard nor the budgets. Nil answers 404.
	Other http.Handler
	// Observe receives a *ResponseEvent for every admitted request, after its budgets are settled,
	// and for every one whose client left before, with the context of the request. Guard.Observe
	// receives all other refusals. It must be fast and safe for concurrent use. Nil observes
	// nothing.
	Observe func(context.Context, core.Event)
}
