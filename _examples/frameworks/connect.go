package frameworks

import (
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
)

// ConnectRefusal returns a nethttp.Config.Refuse that answers in the protocol of the request: Connect,
// gRPC or gRPC-Web.
func ConnectRefusal() func(http.ResponseWriter, *http.Request, *nethttp.Admission) {
	answers := connect.NewErrorWriter()
	codes := map[int]connect.Code{
		http.StatusTooManyRequests: connect.CodeResourceExhausted,
		http.StatusUnauthorized:    connect.CodeUnauthenticated,
		http.StatusForbidden:       connect.CodePermissionDenied,
	}
	return func(w http.ResponseWriter, r *http.Request, a *nethttp.Admission) {
		code, known := codes[a.Status()]
		if !known {
			code = connect.CodeUnavailable
		}
		refusal := connect.NewError(code, errors.New(a.Detail()))
		if wait, ok := a.RetryAfter(); ok && wait != core.Never {
			info, err := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
			if err == nil {
				refusal.AddDetail(info)
			}
		}
		_ = answers.Write(w, r, refusal) // the client may have left
	}
}
