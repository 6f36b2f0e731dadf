package nethttp

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/headgate/headgate/keyfunc"
)

// Detail returns sentences that tell the client why its request is refused, or "" if the status
// tells enough. They are fit for a response.
func (a *Admission) Detail() string {
	switch e := a.before(); {
	case a.Full() != nil:
		return a.fullDetail()
	case e.differs:
		return "A request with this id had another method, target or body."
	case e.handled && e.lost != "":
		return "A request with this id was handled before. " + e.lost.detail()
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

// denialDetail tells the client which policies deny the request, and why.
func (a *Admission) denialDetail() string {
	var lacked, shut, over, held, short, exhausted []string
	for i, r := range a.denials() {
		d, name := denialOf(r, a.charged[i].cost), `"`+r.Policy.Name()+`"`
		switch {
		case a.charged[i].by.block != nil: // the client is told another reason
		case d.DeniesAll && a.limitUnder(r.Policy) != nil:
			lacked = append(lacked, name)
		case d.DeniesAll:
			shut = append(shut, name)
		case d.TooLarge:
			over = append(over, name)
		case d.Running:
			held = append(held, name)
		case d.Known && d.Remaining > 0:
			short = append(short, name)
		default:
			exhausted = append(exhausted, name)
		}
	}
	var sentences []string
	add := func(before string, names []string, after string) {
		if len(names) == 0 {
			return
		}
		word := "policy "
		if len(names) > 1 {
			word = "policies "
		}
		sentences = append(sentences, before+word+strings.Join(names, ", ")+after)
	}
	add("The plan does not include ", lacked, ".")
	add("No request is allowed by ", shut, ".")
	add("The cost of the request exceeds the limit of ", over, ".")
	add("Running requests hold what the request needs of ", held, ".")
	add("The request costs more than is left of ", short, ".")
	add("The quota of ", exhausted, " is exhausted.")
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
