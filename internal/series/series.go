// Package series has the names, units and labels of all metrics, and records their values. Whoever
// owns an event says which series it changes: package report for those of core and of the packages
// beside core; a package above core for its own, by the Family that it registers when it is
// initialized, so that only its users link it.
package series

import (
	"strings"
	"sync"
)

// Kind is how the values of a series add up.
type Kind uint8

// The kinds of a Series.
const (
	Counter   Kind = iota + 1 // adds up values
	Gauge                     // is the last value
	Histogram                 // counts values by size
)

// Series is a name, and what is counted under it for each combination of its labels.
type Series struct {
	Name   string // in OpenTelemetry
	Kind   Kind
	Unit   string // in UCUM; what is counted stands in braces
	Help   string
	Labels []string
	// PerTenant says that the series has LabelTenant too if the user tells tenants.
	PerTenant bool
	// Read says that the values are read from the Gates that are watched, and come with no event.
	Read    bool
	Buckets []float64 // upper bounds, of a Histogram

	index int // in All, which sets it
}

// Prometheus returns the name in Prometheus, which is that to which OpenTelemetry's exporters and
// collectors translate Name.
func (s *Series) Prometheus() string {
	name := strings.ReplaceAll(s.Name, ".", "_")
	if s.Unit == Seconds {
		name += "_seconds"
	}
	if s.Kind == Counter {
		name += "_total"
	}
	return name
}

// Seconds is the unit of times. All other units are in braces.
const Seconds = "s"

var (
	decisionTimes = []float64{
		25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3,
		250e-3, 1,
	}
	waitTimes = []float64{1e-3, 5e-3, 25e-3, 100e-3, 250e-3, 1, 2.5, 5, 10, 30, 60, 300}
)

// The series. docs/reference/series.md has the same table, which a test compares. They are data and take
// no call to make, so that a program links only those that it names, and all of them for an observer.
var (
	Requests = &Series{
		Name: "headgate.requests", Kind: Counter, Unit: "{request}", PerTenant: true,
		Help:   "Charges that were decided on, one for each policy of a request.",
		Labels: []string{LabelPolicy, LabelResult, LabelSource},
	}
	Decisions = &Series{
		Name: "headgate.decisions", Kind: Counter, Unit: "{decision}",
		Help:   "Decisions, each on all charges of a request.",
		Labels: []string{LabelOperation, LabelSource},
	}
	DecisionDuration = &Series{
		Name: "headgate.decision.duration", Kind: Histogram, Unit: Seconds, Buckets: decisionTimes,
		Help:   "Time that a decision took. One without Redis is left out below 100 µs.",
		Labels: []string{LabelOperation, LabelSource},
	}
	LimiterWait = &Series{
		Name: "headgate.limiter.wait", Kind: Histogram, Unit: Seconds, Buckets: waitTimes,
		Help:   "Wait that a Limiter or a Reserve was told before it may act, by the policy that waits longest.",
		Labels: []string{LabelPolicy},
	}
	Reservations = &Series{
		Name: "headgate.reservations", Kind: Counter, Unit: "{operation}",
		Help:   "Reservations that were settled, cancelled or refunded, or whose hold expired.",
		Labels: []string{LabelOperation, LabelResult},
	}
	KeyChanges = &Series{
		Name: "headgate.key.changes", Kind: Counter, Unit: "{change}",
		Help:   "Changes of what a key has used, other than by decisions, and calls of ledgers.",
		Labels: []string{LabelPolicy, LabelOperation, LabelResult},
	}
	OperationDuration = &Series{
		Name: "headgate.operation.duration", Kind: Histogram, Unit: Seconds, Buckets: decisionTimes,
		Help:   "Time that an operation other than a decision or an acquire took.",
		Labels: []string{LabelOperation, LabelResult},
	}
	Thresholds = &Series{
		Name: "headgate.thresholds", Kind: Counter, Unit: "{threshold}",
		Help:   "Keys that reached a threshold of their limit.",
		Labels: []string{LabelPolicy, LabelPercent},
	}
	CircuitOpen = &Series{
		Name: "headgate.circuit.open", Kind: Gauge, Unit: "{circuit}",
		Help:   "1 while the circuit of a server is open, 0 after it has closed.",
		Labels: []string{LabelNode},
	}
	CircuitChanges = &Series{
		Name: "headgate.circuit.changes", Kind: Counter, Unit: "{change}",
		Help:   "Circuits that opened and closed.",
		Labels: []string{LabelNode, LabelState},
	}
	Overloads = &Series{
		Name: "headgate.overloads", Kind: Counter, Unit: "{report}",
		Help:   "Seconds in which calls to a server ended because this process could not send or read in time.",
		Labels: []string{LabelNode},
	}
	MissingScripts = &Series{
		Name: "headgate.missing_scripts", Kind: Counter, Unit: "{script}",
		Help: "Scripts that Redis did not know and was sent.",
	}

	SlotRequests = &Series{
		Name: "headgate.slot.requests", Kind: Counter, Unit: "{request}",
		Help:   "Requests for a slot.",
		Labels: []string{LabelSemaphore, LabelResult, LabelSource},
	}
	SlotDuration = &Series{
		Name: "headgate.slot.duration", Kind: Histogram, Unit: Seconds, Buckets: waitTimes,
		Help:   "Time until a slot was granted or refused, with the wait in the queue.",
		Labels: []string{LabelSemaphore, LabelResult},
	}
	TimeInQueue = &Series{
		Name: "headgate.request.time_in_queue", Kind: Histogram, Unit: Seconds, Buckets: waitTimes,
		Help:   "Time until a slot was granted or refused, of the requests that were queued.",
		Labels: []string{LabelSemaphore, LabelResult},
	}
	LeaseDuration = &Series{
		Name: "headgate.request_lease.duration", Kind: Histogram, Unit: Seconds, Buckets: waitTimes,
		Help:   "Time for which a slot was held until its release.",
		Labels: []string{LabelSemaphore},
	}
	LeaseChanges = &Series{
		Name: "headgate.lease.changes", Kind: Counter, Unit: "{change}",
		Help:   "Leases that were released, lost, adopted or evicted.",
		Labels: []string{LabelSemaphore, LabelChange, LabelResult},
	}
	ActiveLeases = &Series{
		Name: "headgate.active_request_leases", Kind: Gauge, Unit: "{lease}", Read: true,
		Help:   "Slots that this process holds.",
		Labels: []string{LabelSemaphore},
	}
	QueuedRequests = &Series{
		Name: "headgate.queued_requests", Kind: Gauge, Unit: "{request}", Read: true,
		Help:   "Callers of this process that wait in a queue for a slot.",
		Labels: []string{LabelSemaphore},
	}

	RoundTrips = &Series{
		Name: "headgate.round_trips", Kind: Counter, Unit: "{trip}", Read: true,
		Help:   "Round trips to a server of Redis.",
		Labels: []string{LabelNode},
	}
	RoundTripFailures = &Series{
		Name: "headgate.round_trip.failures", Kind: Counter, Unit: "{trip}", Read: true,
		Help:   "Round trips that the server did not answer.",
		Labels: []string{LabelNode},
	}
	RoundTripCalls = &Series{
		Name: "headgate.round_trip.calls", Kind: Counter, Unit: "{call}", Read: true,
		Help:   "Calls that round trips carried.",
		Labels: []string{LabelNode},
	}
	RoundTripTime = &Series{
		Name: "headgate.round_trip.time", Kind: Counter, Unit: Seconds, Read: true,
		Help:   "Sum of the times of round trips.",
		Labels: []string{LabelNode},
	}

	FilterCalls = &Series{
		Name: "headgate.filter.calls", Kind: Counter, Unit: "{call}",
		Help:   "Calls of a Bloom filter.",
		Labels: []string{LabelFilter, LabelResult},
	}
	PlanChanges = &Series{
		Name: "headgate.plan.changes", Kind: Counter, Unit: "{change}",
		Help:   "What happened in a Book of plans.",
		Labels: []string{LabelOperation, LabelResult},
	}
	OperatorChanges = &Series{
		Name: "headgate.operator.changes", Kind: Counter, Unit: "{change}",
		Help:   "Changes that operators have made by the page of package admin.",
		Labels: []string{LabelOperation, LabelResult},
	}
	Admissions = &Series{
		Name: "headgate.http.requests", Kind: Counter, Unit: "{request}", PerTenant: true,
		Help:   "Requests that a Guard admitted, or refused with a status.",
		Labels: []string{LabelStatus},
	}

	OutboundRequests = &Series{
		Name: "headgate.outbound.requests", Kind: Counter, Unit: "{request}",
		Help:   "Requests that a Transport ended, by the status of the response.",
		Labels: []string{LabelStatus, LabelResult},
	}
	OutboundSendings = &Series{
		Name: "headgate.outbound.sendings", Kind: Counter, Unit: "{sending}",
		Help: "How often these requests were sent, with their retries.",
	}
	OutboundTimeInQueue = &Series{
		Name: "headgate.outbound.time_in_queue", Kind: Histogram, Unit: Seconds, Buckets: waitTimes,
		Help:   "Time that these requests waited for room, of those that waited.",
		Labels: []string{LabelResult},
	}
	OutboundWaits = &Series{
		Name: "headgate.outbound.waits", Kind: Counter, Unit: "{wait}",
		Help:   "Requests that began to wait for a rule, a slot or a cooldown.",
		Labels: []string{LabelRule},
	}
	OutboundCooldown = &Series{
		Name: "headgate.outbound.cooldown", Kind: Histogram, Unit: Seconds, Buckets: waitTimes,
		Help:   "Cooldowns that refusals of the upstream began, by the status of the refusal.",
		Labels: []string{LabelStatus, LabelResult},
	}
	OutboundLower = &Series{
		Name: "headgate.outbound.lower", Kind: Counter, Unit: "{response}",
		Help:   "Responses that told less to be left than a rule counted.",
		Labels: []string{LabelPolicy, LabelResult},
	}

	Responses = &Series{
		Name: "headgate.llm.responses", Kind: Counter, Unit: "{response}", PerTenant: true,
		Help:   "Responses of language models, by how their usage was found.",
		Labels: []string{LabelModel, LabelOutcome},
	}
	Tokens = &Series{
		Name: "headgate.llm.tokens", Kind: Counter, Unit: "{token}", PerTenant: true,
		Help:   "Tokens that requests were charged for. The kinds do not overlap.",
		Labels: []string{LabelModel, LabelKind},
	}
	EstimatedTokens = &Series{
		Name: "headgate.llm.estimated_tokens", Kind: Counter, Unit: "{token}",
		Help:   "Tokens that were estimated for the same requests.",
		Labels: []string{LabelModel, LabelKind},
	}
	Cost = &Series{
		Name: "headgate.llm.cost_usd", Kind: Counter, Unit: "{USD}", PerTenant: true,
		Help:   "Price of the responses in US dollars.",
		Labels: []string{LabelModel},
	}
	Overruns = &Series{
		Name: "headgate.llm.overruns", Kind: Counter, Unit: "{response}",
		Help:   "Responses for which a budget denied a running charge.",
		Labels: []string{LabelModel},
	}
	Drained = &Series{
		Name: "headgate.llm.drained", Kind: Counter, Unit: "{response}",
		Help:   "Responses that were read to their end after the client had left.",
		Labels: []string{LabelModel},
	}
	UnknownPrices = &Series{
		Name: "headgate.llm.unknown_prices", Kind: Counter, Unit: "{response}",
		Help:   "Responses with a part that no tariff prices, which was charged as the dearest.",
		Labels: []string{LabelModel},
	}
	PriceReloads = &Series{
		Name: "headgate.llm.price_reloads", Kind: Counter, Unit: "{reload}",
		Help:   "Price files that were read again.",
		Labels: []string{LabelResult},
	}
)

var all = [...]*Series{
	Requests, Decisions, DecisionDuration, LimiterWait, Reservations, KeyChanges,
	OperationDuration, Thresholds, CircuitOpen, CircuitChanges, Overloads, MissingScripts,
	SlotRequests, SlotDuration, TimeInQueue, LeaseDuration, LeaseChanges, ActiveLeases,
	QueuedRequests, RoundTrips, RoundTripFailures, RoundTripCalls, RoundTripTime, FilterCalls,
	PlanChanges, OperatorChanges, Admissions, OutboundRequests, OutboundSendings,
	OutboundTimeInQueue, OutboundWaits, OutboundCooldown, OutboundLower, Responses, Tokens,
	EstimatedTokens, Cost, Overruns, Drained, UnknownPrices, PriceReloads,
}

var numbered sync.Once

// All returns every series. It must not be changed.
func All() []*Series {
	numbered.Do(func() {
		for i, s := range all {
			s.index = i
		}
	})
	return all[:]
}
