package nethttp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
)

// panicText returns the text of the panic of f, or "".
func panicText(f func()) (text string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case error:
			text = p.Error()
		default:
			text = "not an error"
		}
	}()
	f()
	return ""
}

// A Guard that NewGuard did not make is reported when the handler is built, not at a request.
func TestInvalidGuardPanicsAtConstruction(t *testing.T) {
	const guard, replay = "nethttp: the Guard is nil or zero: NewGuard or Limit must make it",
		"nethttp: the Replay is nil or zero: NewReplay must make it"
	for g, want := range map[nethttp.Admitter]string{
		(*nethttp.Guard)(nil): guard, new(nethttp.Guard): guard,
		(*nethttp.Replay)(nil): replay, new(nethttp.Replay): replay,
	} {
		if got := panicText(func() { g.Handler(http.HandlerFunc(ok)) }); got != want {
			t.Errorf("%T: panic %q, want %q", g, got, want)
		}
	}
}

// An adapter may call Admit without a check. It must neither panic nor admit uncounted requests.
func TestAdmitOfInvalidGuardRefuses(t *testing.T) {
	for name, g := range map[string]nethttp.Admitter{
		"nil": (*nethttp.Guard)(nil), "zero": new(nethttp.Guard), "nil Replay": (*nethttp.Replay)(nil), "zero Replay": new(nethttp.Replay),
	} {
		t.Run(name, func(t *testing.T) {
			r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
			a := g.Admit(r)
			a.WriteHeaders(w.Header())
			g.Refuse(w, r, &a.Admission)
			a.Finish(r, a.Status())
			if a.Allowed() || a.Err() == nil || w.Code != http.StatusInternalServerError {
				t.Errorf("allowed %v, %v, status %d", a.Allowed(), a.Err(), w.Code)
			}
			g, ok := g.(*nethttp.Guard)
			if !ok {
				return
			}
			if _, err := g.Charges(r); err == nil {
				t.Error("Charges returned no error")
			}
			if _, err := g.Caps(r); err == nil {
				t.Error("Caps returned no error")
			}
		})
	}
}

func TestEnumerationsHaveNames(t *testing.T) {
	for want, got := range map[string]string{
		"refuse": nethttp.NoKeyRefuse.String(), "skip": nethttp.NoKeySkip.String(), "unknown": nethttp.NoKey(200).String(),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
