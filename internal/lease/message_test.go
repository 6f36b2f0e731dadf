package lease

import "testing"

func TestMessage(t *testing.T) {
	for text, ok := range map[string]bool{
		"id 1763700000123456 5000000 3": true, "": false, "id": false, "!id": false, "id 1 2": false, "id 1 2 x": false, "id 1 2 3 4": false,
	} {
		m, is := ParseMessage(text)
		if is != ok || ok && m.String() != text {
			t.Errorf("%q is %+v, %v", text, m, is)
		}
	}
}
