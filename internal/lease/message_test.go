package lease

import "testing"

func TestParseMessage(t *testing.T) {
	for text, want := range map[string]bool{
		"id 1763700000123456 5000000 3": true, "": false, "id": false, "!id": false,
		"id 1 2": false, "id 1 2 x": false, "id 1 2 3 4": false,
	} {
		m, ok := ParseMessage(text)
		if ok != want || want && m.String() != text {
			t.Errorf("ParseMessage(%q) = %+v, %v", text, m, ok)
		}
	}
}
