package sloggate_test

import (
	"context"
	"log/slog"
	"os"

	"github.com/headgate/headgate/core"
	sloggate "github.com/headgate/headgate/observe/slog"
)

func Example() {
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	logs := core.Must(sloggate.New(sloggate.Config{
		Logger: slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTime})),
	}))
	gate := core.Must(core.NewMemory(core.Config{Observe: logs.Observe}))
	policy := core.Must(core.NewPolicy(core.PolicyConfig{Name: "export", Algorithm: core.DenyAll{}}))
	for range 3 {
		_, _ = gate.Decide(context.Background(), core.Charge{
			Policy: policy, Key: core.Must(core.NewKey("acme")), Cost: 1,
		})
	}
	logs.Flush(context.Background()) // before the program ends
	// Output:
	// level=INFO msg=denied policy=export key=49cef9602371ec53 source=memory limit=0 retry_after=never
	// level=INFO msg="denied again" policy=export key=49cef9602371ec53 times=2
}
