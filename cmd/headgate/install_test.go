package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/headgate/headgate/internal/gatetest"
)

// publish writes a module into a file tree that is a module proxy.
func publish(t *testing.T, proxy, dir string, version module.Version) {
	t.Helper()
	escaped := gatetest.Must(module.EscapePath(version.Path))(t)
	at := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	gatetest.NoError(t, os.MkdirAll(at, 0o700))
	mod := gatetest.Must(os.ReadFile(filepath.Join(dir, "go.mod")))(t)
	for name, text := range map[string]string{
		"list": version.Version + "\n", version.Version + ".mod": string(mod),
		version.Version + ".info": `{"Version":"` + version.Version + `"}`,
	} {
		gatetest.NoError(t, os.WriteFile(filepath.Join(at, name), []byte(text), 0o600))
	}
	f := gatetest.Must(os.Create(filepath.Join(at, version.Version+".zip")))(t)
	defer func() { _ = f.Close() }()
	gatetest.NoError(t, zip.CreateFromDir(f, version, dir))
}

const modulePath = "github.com/headgate/headgate"

// user runs go as somebody does for whom modules of this repository are tagged v0.1.0.
type user struct {
	dir string // also of programs that it installs
	env []string
}

// newUser returns a user of the root module and of others.
func newUser(t *testing.T, modules ...string) user {
	t.Helper()
	if testing.Short() {
		t.Skip("builds all that the modules import")
	}
	root := gatetest.Must(filepath.Abs("../.."))(t)
	proxy, dir := t.TempDir(), t.TempDir()
	for _, m := range append([]string{""}, modules...) {
		publish(t, proxy, filepath.Join(root, m), module.Version{Path: path.Join(modulePath, m), Version: "v0.1.0"})
	}
	known := gatetest.Must(exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output())(t)
	cache, next, _ := strings.Cut(strings.TrimSpace(string(known)), "\n")
	return user{dir, append(os.Environ(), "GOBIN="+dir, "GOMODCACHE="+t.TempDir(), "GOFLAGS=-modcacherw -trimpath", "GOWORK=",
		"GOPROXY=file://"+proxy+",file://"+cache+"/cache/download,"+next, "GONOSUMDB=*")}
}

func (u user) run(t *testing.T, args ...string) {
	t.Helper()
	_ = u.output(t, args...)
}

func (u user) output(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = u.dir, u.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// go install builds the command: go.mod has no replace, and go.work does not count there.
func TestGoInstall(t *testing.T) {
	t.Parallel()
	u := newUser(t, "cmd/headgate")
	u.run(t, "install", modulePath+"/cmd/headgate@v0.1.0")
	out, err := exec.CommandContext(t.Context(), filepath.Join(u.dir, "headgate"), "--version").CombinedOutput()
	if err != nil || string(out) != "headgate v0.1.0\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// build writes a program of a module of its own, gets what it names, and builds it.
func (u user) build(t *testing.T, program string, gets ...string) {
	t.Helper()
	gatetest.NoError(t, os.WriteFile(filepath.Join(u.dir, "main.go"), []byte(program), 0o600))
	u.run(t, "mod", "init", "example.com/user")
	u.run(t, append([]string{"get"}, gets...)...)
	u.run(t, "mod", "tidy")
	u.run(t, "build", "-o", filepath.Join(u.dir, "program"), ".")
}

// go get finds the exporters' modules, which require the root module by the version of its tag.
func TestGoGetOfExporters(t *testing.T) {
	t.Parallel()
	for _, exporter := range []string{"observe/prometheus", "observe/otel"} {
		t.Run(exporter, func(t *testing.T) {
			newUser(t, exporter).build(t, importing(exporter), path.Join(modulePath, exporter)+"@v0.1.0")
		})
	}
}

// importing returns a program that imports packages of this repository.
func importing(packages ...string) string {
	var b strings.Builder
	b.WriteString("package main\n\nimport (\n")
	for _, p := range packages {
		fmt.Fprintf(&b, "\t_ %q\n", path.Join(modulePath, p))
	}
	b.WriteString(")\n\nfunc main() {}\n")
	return b.String()
}

// README's first program builds in a new module, and every adapter with the oldest and the newest framework of the
// table of versions.
func TestGoGet(t *testing.T) {
	t.Parallel()
	readme := gatetest.Must(os.ReadFile("../../README.md"))(t)
	_, program, _ := strings.Cut(string(readme), "```go\n")
	program, _, _ = strings.Cut(program, "```\n")
	oldest, newest := frameworks(t)
	adapters := importing("adapters/chi", "adapters/gin", "adapters/echo", "adapters/echov5")
	for name, test := range map[string]struct {
		program string
		gets    []string
	}{
		"first program":     {program, nil},
		"oldest frameworks": {adapters, oldest},
		"newest frameworks": {adapters, newest},
	} {
		t.Run(name, func(t *testing.T) {
			if test.gets != nil && !gatetest.Long() {
				t.Skip("builds all that the frameworks import: nightly")
			}
			u := newUser(t)
			u.build(t, test.program, append([]string{modulePath + "@v0.1.0"}, test.gets...)...)
			for _, want := range test.gets {
				module, version, _ := strings.Cut(want, "@")
				gatetest.Equal(t, u.output(t, "list", "-m", "-f", "{{.Version}}", module), version, "%s is", module)
			}
		})
	}
}

// frameworks returns the oldest and the newest that docs/reference/upgrading.md names, as arguments of go get.
func frameworks(t *testing.T) (oldest, newest []string) {
	t.Helper()
	page := string(gatetest.Must(os.ReadFile("../../docs/reference/upgrading.md"))(t))
	for name, modules := range map[string][]string{
		"chi": {"github.com/go-chi/chi/v5"}, "gin": {"github.com/gin-gonic/gin"},
		"echo v4, v5": {"github.com/labstack/echo/v4", "github.com/labstack/echo/v5"},
	} {
		_, row, found := strings.Cut(page, "\n| "+name+" | ")
		row, _, _ = strings.Cut(row, " |\n")
		low, high, _ := strings.Cut(row, " | ")
		if high == "the same" {
			high = low
		}
		lows, highs := strings.Split(low, ", "), strings.Split(high, ", ")
		if !found || len(lows) != len(modules) || len(highs) != len(modules) {
			t.Fatalf("the table of versions has %q of %s", row, name)
		}
		for i, m := range modules {
			oldest, newest = append(oldest, m+"@"+lows[i]), append(newest, m+"@"+highs[i])
		}
	}
	return oldest, newest
}
