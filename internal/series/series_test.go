package series

import (
	"os"
	"strings"
	"testing"
)

func TestAllHasEverySeries(t *testing.T) {
	source, err := os.ReadFile("series.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), "= &Series{"); n != len(All()) {
		t.Errorf("All has %d series of %d", len(All()), n)
	}
}
