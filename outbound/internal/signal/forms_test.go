package signal_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/provider"
	"github.com/headgate/headgate/outbound/internal/signal"
)

// Every form in which the test provider refuses tells its wait, and none less than that.
func TestFormsOfProvider(t *testing.T) {
	at := now.Add(300 * time.Millisecond)
	for _, form := range provider.Forms {
		p := provider.New(provider.Config{Form: form, Now: func() time.Time { return at },
			Limits: []provider.Limit{{Unit: provider.Requests, N: 1, Per: 4500 * time.Millisecond}}})
		var w *httptest.ResponseRecorder
		for range 2 {
			w = httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(`{"model":"m"}`)))
		}
		s := signal.Read(w.Code, w.Header(), w.Body.Bytes(), at)
		if s.Reason == signal.None || s.Reason == signal.Spent || s.Wait < 4500*time.Millisecond || s.Wait > 5500*time.Millisecond || s.Scope != signal.Model {
			t.Errorf("%v: %d %v: %+v", form, w.Code, w.Header(), s)
		}
	}
	for form, want := range map[provider.Form]signal.Signal{
		provider.Unclear: {Reason: signal.Slow}, provider.Overloaded: {Reason: signal.Loaded}, provider.Spent: {Reason: signal.Spent, Scope: signal.Account},
	} {
		p := provider.New(provider.Config{Form: form, Limits: []provider.Limit{{Unit: provider.Requests, N: 1, Per: time.Hour}}})
		var w *httptest.ResponseRecorder
		for range 2 {
			w = httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(`{"model":"m"}`)))
		}
		s := signal.Read(w.Code, w.Header(), w.Body.Bytes(), now)
		if s.Reason != want.Reason || s.Scope != want.Scope || s.Wait != 0 {
			t.Errorf("%v: %+v", form, s)
		}
	}
}
