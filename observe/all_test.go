package observe_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe"
)

func TestAll(t *testing.T) {
	var order string
	note := func(name string) func(context.Context, core.Event) {
		return func(_ context.Context, e core.Event) { order += name + " " + e.EventName() + "," }
	}
	observe.All(note("a"), nil, note("b"))(t.Context(), &core.ServerEvent{Op: core.OpOverload})
	observe.All(nil, note("c"))(t.Context(), &core.ThresholdEvent{})
	if want := "a overload,b overload,c threshold,"; order != want {
		t.Errorf("observed %q, want %q", order, want)
	}
	if observe.All() != nil || observe.All(nil, nil) != nil {
		t.Error("without observers All is not nil")
	}
}
