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
