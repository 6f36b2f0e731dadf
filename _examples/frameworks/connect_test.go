package frameworks

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Clients of the three protocols are told the code and the wait of a refusal.
func TestConnect(t *testing.T) {
	for name, tt := range map[string]struct {
		options []connect.ClientOption
		limit   core.Algorithm
		least   time.Duration // of the wait
	}{
		"Connect":            {nil, core.PerHour(1), time.Minute},
		"gRPC":               {[]connect.ClientOption{connect.WithGRPC()}, core.PerHour(1), time.Minute},
		"gRPC-Web":           {[]connect.ClientOption{connect.WithGRPCWeb()}, core.PerHour(1), time.Minute},
		"gRPC, for ever":     {[]connect.ClientOption{connect.WithGRPC()}, core.TokenBucket{Burst: 1}, 0},
		"Connect by JSON":    {[]connect.ClientOption{connect.WithProtoJSON()}, core.PerHour(1), time.Minute},
		"gRPC-Web, for ever": {[]connect.ClientOption{connect.WithGRPCWeb()}, core.TokenBucket{Burst: 1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			gate := core.Must(core.NewMemory(core.Config{}))
			guard := core.Must(nethttp.NewGuard(nethttp.Config{
				Gate: gate, Refuse: ConnectRefusal(),
				Rules: []nethttp.Rule{{
					Policy: core.Must(core.NewPolicy(core.PolicyConfig{Name: "calls", Algorithm: tt.limit})),
					Key:    keyfunc.RemoteIP(), Settle: nethttp.RefundServerErrors,
				}},
			}))
			const procedure = "/acme.v1.Items/Get"
			mux := http.NewServeMux()
			mux.Handle(procedure, guard.Handler(connect.NewUnaryHandler(procedure,
				func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
					return connect.NewResponse(new(emptypb.Empty)), nil
				})))
			server := httptest.NewUnstartedServer(mux)
			server.EnableHTTP2 = true
			server.StartTLS()
			defer server.Close()
			client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+procedure, tt.options...)
			if _, err := client.CallUnary(t.Context(), connect.NewRequest(new(emptypb.Empty))); err != nil {
				t.Fatal(err)
			}
			_, err := client.CallUnary(t.Context(), connect.NewRequest(new(emptypb.Empty)))
			var refusal *connect.Error
			if !errors.As(err, &refusal) || refusal.Code() != connect.CodeResourceExhausted {
				t.Fatal(err)
			}
			if wait := waitOf(t, refusal); wait < tt.least || tt.least == 0 && wait != 0 {
				t.Errorf("the wait is %v", wait)
			}
		})
	}
}

// waitOf returns the wait of a RetryInfo, or 0 if there is none.
func waitOf(t *testing.T, refusal *connect.Error) time.Duration {
	t.Helper()
	for _, detail := range refusal.Details() {
		value, err := detail.Value()
		if err != nil {
			t.Fatal(err)
		}
		if info, ok := value.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}
