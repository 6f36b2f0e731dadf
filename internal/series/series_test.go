package series

import (
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/gatetest"
)

func TestAllHasEverySeries(t *testing.T) {
	source := gatetest.Must(os.ReadFile("series.go"))(t)
	if n := strings.Count(string(source), "= &Series{"); n != len(All()) {
		t.Errorf("All has %d series of %d", len(All()), n)
	}
}
