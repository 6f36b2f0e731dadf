package nethttp

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/headgate/headgate/keyfunc"
)

// Detail returns sentences that tell the client why its request is refused, or "" if the status
// tells enough. They are fit for a response.
func (a *Admission) Detail() string {
	switch e := &a.earlier; {
	case a.Full() != nil:
		return a.fullDetail()
	case e.differs:
		return "A request with this id had another method, target or body."
	case e.handled && e.lost != "":
		return "A request with this id was handled before. " + cmp.Or(lossDetails[e.lost], lossDetails[lostUnknown])
	case e.handled:
		return "A request with this id was handled before."
	case e.busy > 0:
		return "Another request with this id is being handled."
	case a.denied == blocked:
		return "The client is blocked for a while because of its earlier requests."
	case a.denied != notDenied:
		return a.denialDetail()
	case errors.Is(a.err, keyfunc.ErrAmbiguous):
		return "The request is ambiguous about the key of its rate limit."
	case a.status == http.StatusBadRequest && errors.Is(a.err, errID):
		return "The request lacks its id."
	case a.status == http.StatusBadRequest && !errors.Is(a.err, errBody):
		return "The request lacks the key of its rate limit."
	}
	return ""
}

// denialDetails say why policies deny a request, around their names.
var denialDetails = [...]struct{ before, after string }{
	lacked:  {"The plan does not include ", "."},
	shut:    {"No request is allowed by ", "."},
	over:    {"The cost of the request exceeds the limit of ", "."},
	held:    {"Running requests hold what the request needs of ", "."},
	short:   {"The request costs more than is left of ", "."},
	drained: {"The quota of ", " is exhausted."},
}

const (
	lacked = iota
	shut
	over
	held
	short
	drained
)

// denialDetail tells the client which policies deny the request, and why.
func (a *Admission) denialDetail() string {
	var names [len(denialDetails)][]string
	for i, d := range a.denials() {
		why := drained
		switch {
		case a.charged[i].by.block != nil:
			continue // the client is told another reason
		case d.DeniesAll && a.limitUnder(d.Policy) != nil:
			why = lacked
		case d.DeniesAll:
			why = shut
		case d.TooLarge:
			why = over
		case d.Running:
			why = held
		case d.Known && d.Remaining > 0:
			why = short
		}
		names[why] = append(names[why], strconv.Quote(d.Policy.Name()))
	}
	var sentences []string
	for why, say := range denialDetails {
		word := "policies "
		switch len(names[why]) {
		case 0:
			continue
		case 1:
			word = "policy "
		}
		sentences = append(sentences, say.before+word+strings.Join(names[why], ", ")+say.after)
	}
	return strings.Join(sentences, " ")
}

// fullDetail tells the client which cap is full.
func (a *Admission) fullDetail() string {
	detail := "All " + strconv.FormatInt(a.caps[a.Full().Cap].Limit, 10) + " concurrent requests"
	if name := a.fullCap().Name; name != "" {
		detail += ` of policy "` + name + `"`
	}
	if a.Full().Queue {
		return detail + " are in use, and the queue is full or the wait too long."
	}
	return detail + " are in use."
}
