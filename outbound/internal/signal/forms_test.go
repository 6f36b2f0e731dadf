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
		if !s.Refused || s.Spent || !s.HasWait || s.Wait < 4500*time.Millisecond || s.Wait > 5500*time.Millisecond || !s.Model {
			t.Errorf("%v: %d %v: %+v", form, w.Code, w.Header(), s)
		}
	}
	for form, want := range map[provider.Form]signal.Signal{
		provider.Unclear: {Refused: true, Model: true}, provider.Overloaded: {Refused: true}, provider.Spent: {Refused: true, Spent: true},
	} {
		p := provider.New(provider.Config{Form: form, Limits: []provider.Limit{{Unit: provider.Requests, N: 1, Per: time.Hour}}})
		var w *httptest.ResponseRecorder
		for range 2 {
			w = httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(`{"model":"m"}`)))
		}
		s := signal.Read(w.Code, w.Header(), w.Body.Bytes(), now)
		if s.Refused != want.Refused || s.Spent != want.Spent || s.Model != want.Model || s.HasWait {
			t.Errorf("%v: %+v", form, s)
		}
	}
}
