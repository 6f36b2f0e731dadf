package signal_test

import (
	"testing"

	"github.com/headgate/headgate/outbound/internal/signal"
)

// A bad request may quote what its user wrote, which says nothing of the account.
func TestQuotedTextIsNoRefusal(t *testing.T) {
	for _, body := range []string{
		`{"error":{"message":"Invalid value: 'your credit balance is too low'. Supported values are: 'system' and 'user'.","type":"invalid_request_error","param":"messages[0].role","code":"invalid_value"}}`,
		`{"error":{"message":"Invalid value: 'you have reached your usage limit'.","type":"invalid_request_error"}}`,
		`{"type":"error","error":{"type":"invalid_request_error","message":"tools.0.name: 'credit balance is too low' does not match '^[a-zA-Z0-9_-]{1,128}$'"}}`,
	} {
		if s := signal.Read(400, nil, []byte(body), now); s.Reason != signal.None {
			t.Errorf("%s: %+v", body, s)
		}
	}
}
