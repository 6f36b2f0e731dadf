package series

// The labels. Those of the first group have values that the configuration names, or servers, so they
// are bounded by Config.
const (
	LabelPolicy    = "policy"
	LabelSemaphore = "semaphore"
	LabelFilter    = "filter"
	LabelNode      = "node"
	LabelModel     = "model"
	LabelRule      = "rule"
	LabelTenant    = "tenant"

	LabelResult    = "result"
	LabelSource    = "source"
	LabelOperation = "operation"
	LabelChange    = "change"
	LabelState     = "state"
	LabelPercent   = "percent"
	LabelStatus    = "status"
	LabelOutcome   = "outcome"
	LabelKind      = "kind"
)

// The results of charges, LabelResult of Requests.
const (
	ResultAllowed       = "allowed"       // the request may go on
	ResultDenied        = "denied"        // this policy has no room
	ResultFits          = "fits"          // this policy has room, and another denies the request
	ResultWouldDeny     = "would_deny"    // a Shadow policy has no room
	ResultCanceled      = "canceled"      // the caller's context ended
	ResultMisconfigured = "misconfigured" // see core.ErrMisconfigured
	ResultFailed        = "failed"        // any other error
)

// Further values of LabelResult.
const (
	ResultAcquired = "acquired" // a slot
	ResultFull     = "full"     // there is none, or the queue is full
	ResultOK       = "ok"
)

// ResultOf returns the result of what succeeds or fails.
func ResultOf(err error) string {
	if err != nil {
		return ResultFailed
	}
	return ResultOK
}

// Other stands for the values of a label beyond its bound, and for what has no name.
const Other = "other"
