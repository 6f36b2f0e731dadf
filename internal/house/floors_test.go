package house_test

import (
	"slices"
	"strings"
	"testing"
)

const module = "github.com/headgate/headgate"

// floors lists the packages from the bottom up. A package may import packages of lower floors, and
// of other modules only those listed for it.
var floors = []struct {
	path    string // below the module
	floor   int
	modules []string // besides the standard library
}{
	{"", 0, nil},
	{"keyfunc", 0, nil},
	{"internal/algorithm", 0, nil},
	{"internal/lease", 0, nil},
	{"internal/bloom", 0, []string{"github.com/twmb/murmur3"}},
	{"internal/breaker", 0, nil},
	{"internal/deadline", 0, nil},
	{"internal/watch", 0, nil},
	{"internal/series", 0, nil},
	{"internal/enum", 0, nil},
	{"internal/stated", 0, nil},
	{"internal/line", 0, nil},
	{"llm/internal/jsonscan", 0, nil},
	{"llm/internal/sse", 0, nil},
	{"llm/internal/pricefile", 0, nil},
	{"llm/internal/wire", 1, []string{"github.com/aws/aws-sdk-go-v2"}},
	{"internal/tenants", 1, nil},
	{"plans/internal/tenants", 1, nil},
	{"internal/flight", 1, nil},
	{"internal/request", 1, nil},
	{"internal/memstore", 2, nil},
	{"internal/redisstore/trips", 2, []string{"github.com/redis/go-redis/v9"}},
	{"internal/redisstore", 3, []string{"github.com/redis/go-redis/v9"}},
	{"internal/stored", 3, []string{"github.com/redis/go-redis/v9"}},
	{"internal/keeper", 3, []string{"github.com/redis/go-redis/v9"}},
	{"internal/threshold", 3, nil},
	{"internal/hub", 4, []string{"github.com/redis/go-redis/v9"}},
	{"core", 5, []string{"github.com/redis/go-redis/v9"}},
	{"core/bloom", 6, nil},
	{"core/semaphore", 6, nil},
	{"core/once", 7, nil},
	{"observe", 7, nil},
	{"observe/internal/report", 7, nil},
	{"observe/slog", 8, nil},
	{"plans", 8, []string{"github.com/redis/go-redis/v9", "github.com/goccy/go-yaml"}},
	{"internal/inspect", 9, []string{"github.com/redis/go-redis/v9"}},
	{"internal/requests", 0, nil},
	{"internal/writers", 0, nil},
	{"adapters/nethttp", 8, nil},
	{"adapters/chi", 9, []string{"github.com/go-chi/chi/v5"}},
	{"adapters/gin", 9, []string{"github.com/gin-gonic/gin"}},
	{"adapters/echo", 9, []string{"github.com/labstack/echo/v4"}},
	{"adapters/echov5", 9, []string{"github.com/labstack/echo/v5"}},
	{"llm", 9, nil},
	{"outbound/internal/signal", 0, []string{"github.com/dunglas/httpsfv"}},
	{"outbound", 8, nil},
	{"admin", 10, nil},
	{"adapters", 10, nil}, // tests of all adapters
}

// testOnly may import anything, because only tests import them.
var testOnly = []string{
	"internal/redistest", "internal/gatetest", "internal/provider", "internal/eventtest", "internal/house",
}

func TestImportsOnlyGoDown(t *testing.T) {
	floor := make(map[string]int)
	for _, f := range floors {
		floor[strings.TrimSuffix(module+"/"+f.path, "/")] = f.floor
	}
	for _, p := range listPackages(t) {
		if !p.isOurs() {
			continue
		}
		if slices.Contains(testOnly, strings.TrimPrefix(p.ImportPath, module+"/")) {
			continue
		}
		own, ok := floor[p.ImportPath]
		if !ok {
			t.Errorf("%s has no floor", p.ImportPath)
			continue
		}
		var allowed []string
		for _, f := range floors {
			if strings.TrimSuffix(module+"/"+f.path, "/") == p.ImportPath {
				allowed = f.modules
			}
		}
		for _, i := range p.Imports {
			below, ours := floor[i]
			switch host, _, _ := strings.Cut(i, "/"); {
			case ours && below >= own:
				t.Errorf("%s imports %s, which is not below it", p.ImportPath, i)
			case !ours && strings.Contains(host, ".") && !isBelow(i, allowed):
				t.Errorf("%s imports %s", p.ImportPath, i)
			}
		}
	}
}

func isBelow(path string, modules []string) bool {
	return slices.ContainsFunc(modules, func(m string) bool {
		return path == m || strings.HasPrefix(path, m+"/")
	})
}

// A user of net/http links exactly the modules that docs/reference/faq.md names.
func TestNethttpDependencies(t *testing.T) {
	linked := modules(t, func(p listedPackage) bool { return p.ImportPath == module+"/adapters/nethttp" })
	want := []string{
		"github.com/cespare/xxhash/v2", module,
		"github.com/redis/go-redis/v9", "github.com/twmb/murmur3", "go.uber.org/atomic",
	}
	if !slices.Equal(linked, want) {
		t.Errorf("adapters/nethttp links %v, want %v", linked, want)
	}
}
