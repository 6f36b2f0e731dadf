package house_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/gatetest"
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

// The FAQ names the modules that go.mod requires and no package links.
func TestFAQNamesModulesOfTests(t *testing.T) {
	linked := modules(t, func(p listedPackage) bool {
		return p.isOurs() && !slices.Contains(testOnly, strings.TrimPrefix(p.ImportPath, module+"/"))
	})
	block := regexp.MustCompile(`(?s)require \((.*?)\n\)`).FindStringSubmatch(read(t, "go.mod"))
	if block == nil {
		t.Fatal("go.mod requires nothing")
	}
	page := read(t, "docs/reference/faq.md")
	_, sentence, _ := strings.Cut(page, "are for tests alone:")
	sentence, _, _ = strings.Cut(sentence, ".\n")
	unlinked := 0
	for line := range strings.Lines(block[1]) {
		path, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if path == "" || strings.Contains(line, "// indirect") || slices.Contains(linked, path) {
			continue
		}
		unlinked++
		parts := strings.Split(path, "/")
		if slices.ContainsFunc(parts, func(part string) bool { return part[0] == 'v' && len(part) == 2 }) {
			parts = parts[:len(parts)-1]
		}
		if !strings.Contains(sentence, parts[len(parts)-1]) {
			t.Errorf("docs/reference/faq.md does not name %s among the modules of tests", path)
		}
	}
	if named := strings.Count(sentence, ",") + 2; named != unlinked {
		t.Errorf("docs/reference/faq.md names %d modules of tests, and there are %d", named, unlinked)
	}
}

// A module that imports one adapter gets no other framework, and nothing that only tests or
// benchmarks need.
func TestUserModuleHasNoForeignDependencies(t *testing.T) {
	here := gatetest.Must(os.Getwd())(t)
	testModules := []string{
		"miniredis", "gopher-lua", "pgregory.net/rapid", "testify", "ginkgo", "gomega", "coder/websocket", "porcupine", "httpsfv", "goleak",
		"redis_rate", "ulule", "throttled", "zeromicro", "httprate", "redislock", "redsync", "rueidis", "gonum",
	}
	for _, c := range []struct {
		adapter, name string
		own           string
		foreign       []string
		sums          bool // whether even the checksums are free of them
	}{
		{"nethttp", "nethttp", "go-redis", []string{"go-chi", "gin-gonic", "labstack", "quic-go", "golang.org/x/net"}, true},
		{"chi", "chigate", "go-chi/chi/v5", []string{"gin-gonic", "labstack", "quic-go", "golang.org/x/net"}, true},
		{"gin", "gingate", "gin-gonic/gin", []string{"go-chi", "labstack", "quic-go"}, false},
		{"echo", "echogate", "labstack/echo/v4", []string{"go-chi", "gin-gonic", "labstack/echo/v5", "quic-go"}, false},
		{"echov5", "echov5gate", "labstack/echo/v5", []string{"go-chi", "gin-gonic", "labstack/echo/v4", "quic-go"}, false},
	} {
		t.Run(c.adapter, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) {
				t.Helper()
				gatetest.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
			entry := "Middleware"
			if c.adapter == "nethttp" {
				entry = "NewGuard"
			}
			write("go.mod", "module example.com/user\n\ngo 1.25.0\n\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+here+"\n")
			write("main.go", "package main\n\nimport "+c.name+" \""+module+"/adapters/"+c.adapter+"\"\n\nfunc main() { _ = "+c.name+"."+entry+" }\n")
			cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
			cmd.Dir = dir
			// They are this module's dependencies, and its go.sum has verified them.
			cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "GONOSUMDB=*")
			linked, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, linked)
			}
			places := map[string]string{"go.mod": read(t, filepath.Join(dir, "go.mod")), "program": string(linked)}
			if c.sums {
				places["go.sum"] = read(t, filepath.Join(dir, "go.sum"))
			}
			for place, text := range places {
				if place != "go.sum" && !strings.Contains(text, c.own) {
					t.Errorf("%s does not contain %s:\n%s", place, c.own, text)
				}
				for _, f := range append(c.foreign, testModules...) {
					if strings.Contains(text, f) {
						t.Errorf("%s contains %s:\n%s", place, f, text)
					}
				}
			}
		})
	}
}
