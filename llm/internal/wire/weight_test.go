package wire_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/llm/internal/wire"
)

// The first guess depends on the kinds of bytes, however the JSON spells them.
func TestPromptTokens(t *testing.T) {
	binary := make([]byte, 300)
	for i := range binary {
		binary[i] = byte(i * 167)
	}
	for _, c := range []struct {
		name, text string
		want       int64
	}{
		{"prose", strings.Repeat("The brown fox jumps. ", 20), 105},
		{"Chinese", strings.Repeat("棕色的狐狸", 20), 100},
		{"digits", strings.Repeat("12 345 ", 30), 115},
		{"base64", base64.StdEncoding.EncodeToString(binary), 267},
		{"identifiers", strings.Repeat("3f2c1a9e-77b0-4c1d-9f3e-0a1b2c3d4e5f ", 10), 243},
		{"a long word is no base64", strings.Repeat("internationalization", 4), 20},
		{"nothing", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			plain, err := json.Marshal(c.text)
			if err != nil {
				t.Fatal(err)
			}
			var escaped strings.Builder
			for _, r := range string(plain) {
				if r < 0x80 {
					escaped.WriteRune(r)
				} else {
					fmt.Fprintf(&escaped, `\u%04x`, r)
				}
			}
			for _, text := range []string{string(plain), escaped.String()} {
				q, err := parse(wire.OpenAIChat, []byte(`{"model":"m","prompt":`+text+`}`))
				if got := q.PromptTokens(); err != nil || got != c.want {
					t.Errorf("%d tokens, %v, want %d", got, err, c.want)
				}
			}
		})
	}
	q, err := parse(wire.AnthropicMessages, []byte(`{"model":"m","messages":[{"content":`+
		`[{"source":{"type":"base64","data":"AAAA"}},{"source":{"type":"text","data":"abcd"}}]}]}`))
	if got := q.PromptTokens(); err != nil || got != 4784+1 || q.Files != 1 || q.PromptBytes != 4 {
		t.Errorf("%d tokens, %+v, %v", got, q, err)
	}
}
