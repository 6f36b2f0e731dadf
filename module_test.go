package headgate_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The FAQ names the modules that go.mod requires and no package links.
func TestFAQNamesModulesOfTests(t *testing.T) {
	list := func(args ...string) []string {
		t.Helper()
		out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}
	required := list("-m", "-f", "{{if not (or .Main .Indirect)}}{{.Path}}{{end}}", "all")
	var packages []string
	for _, p := range list("./...") {
		if !slices.Contains(testOnly, strings.TrimPrefix(p, module+"/")) {
			packages = append(packages, p)
		}
	}
	linked := list(append([]string{"-deps", "-f", "{{with .Module}}{{.Path}}{{end}}"}, packages...)...)
	page := read(t, "docs/faq.md")
	_, sentence, _ := strings.Cut(page, "are for tests alone:")
	sentence, _, _ = strings.Cut(sentence, ".\n")
	unlinked := 0
	for _, path := range required {
		if slices.Contains(linked, path) {
			continue
		}
		unlinked++
		parts := strings.Split(path, "/")
		if slices.ContainsFunc(parts, func(part string) bool { return part[0] == 'v' && len(part) == 2 }) {
			parts = parts[:len(parts)-1]
		}
		if !strings.Contains(sentence, parts[len(parts)-1]) {
			t.Errorf("docs/faq.md does not name %s among the modules of tests", path)
		}
	}
	if named := strings.Count(sentence, ",") + 2; named != unlinked {
		t.Errorf("docs/faq.md names %d modules of tests, and there are %d", named, unlinked)
	}
}

// A module that imports one adapter gets no other framework, and nothing that only tests or
// benchmarks need.
func TestUserModuleHasNoForeignDependencies(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
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
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			entry := "Middleware"
			if c.adapter == "nethttp" {
				entry = "NewGuard"
			}
			write("go.mod", "module example.com/user\n\ngo 1.25.0\n\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+here+"\n")
			write("main.go", "package main\n\nimport "+c.name+" \""+module+"/adapters/"+c.adapter+"\"\n\nfunc main() { _ = "+c.name+"."+entry+" }\n")
			run := func(args ...string) string {
				t.Helper()
				cmd := exec.Command("go", args...)
				cmd.Dir = dir
				// They are this module's dependencies, and its go.sum has verified them.
				cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "GONOSUMDB=*")
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("go %s: %v: %s", strings.Join(args, " "), err, out)
				}
				return string(out)
			}
			run("build", "-o", "program", ".")
			read := func(name string) string {
				t.Helper()
				text, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				return string(text)
			}
			places := map[string]string{"go.mod": read("go.mod"), "program": run("version", "-m", "program")}
			if c.sums {
				places["go.sum"] = read("go.sum")
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
