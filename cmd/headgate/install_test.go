package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
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

// published returns how to make users, who share a proxy of these modules and a cache of all that they import.
func published(t *testing.T, modules ...string) func(t *testing.T) user {
	t.Helper()
	root := gatetest.Must(filepath.Abs("../.."))(t)
	proxy := t.TempDir()
	for _, m := range modules {
		publish(t, proxy, filepath.Join(root, m), module.Version{Path: path.Join(modulePath, m), Version: "v0.1.0"})
	}
	known := gatetest.Must(exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output())(t)
	cache, next, _ := strings.Cut(strings.TrimSpace(string(known)), "\n")
	env := append(os.Environ(), "GOMODCACHE="+t.TempDir(), "GOFLAGS=-modcacherw -trimpath", "GOWORK=", "GONOSUMDB=*",
		"GOPROXY=file://"+proxy+",file://"+cache+"/cache/download,"+next)
	return func(t *testing.T) user {
		dir := t.TempDir()
		return user{dir, append(slices.Clone(env), "GOBIN="+dir)}
	}
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

// build writes a program of a module of its own, gets what it names, and builds it.
func (u user) build(t *testing.T, program string, gets ...string) {
	t.Helper()
	gatetest.NoError(t, os.WriteFile(filepath.Join(u.dir, "main.go"), []byte(program), 0o600))
	u.run(t, "mod", "init", "example.com/user")
	u.run(t, append([]string{"get"}, gets...)...)
	u.run(t, "mod", "tidy")
	u.run(t, "build", "-o", filepath.Join(u.dir, "program"), ".")
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

// What a user gets of the tagged modules builds in a new module: README's first program, the exporters beside each
// other, and every adapter with the oldest and the newest framework of the table of versions. go install builds the
// command: go.mod has no replace, and go.work does not count there.
func TestGoGet(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds all that the modules import")
	}
	newUser := published(t, "", "cmd/headgate", "observe/prometheus", "observe/otel")
	readme := gatetest.Must(os.ReadFile("../../README.md"))(t)
	_, program, _ := strings.Cut(string(readme), "```go\n")
	program, _, _ = strings.Cut(program, "```\n")
	oldest, newest := frameworks(t)
	adapters := importing("adapters/chi", "adapters/gin", "adapters/echo", "adapters/echov5")
	for name, test := range map[string]struct {
		program string
		gets    []string
		nightly bool // builds all that the frameworks import
	}{
		"first program": {program, []string{modulePath + "@v0.1.0"}, false},
		"exporters": {importing("observe/prometheus", "observe/otel"),
			[]string{modulePath + "/observe/prometheus@v0.1.0", modulePath + "/observe/otel@v0.1.0"}, false},
		"oldest frameworks": {adapters, append(oldest, modulePath+"@v0.1.0"), true},
		"newest frameworks": {adapters, append(newest, modulePath+"@v0.1.0"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.nightly && !gatetest.Long() {
				t.Skip("nightly")
			}
			u := newUser(t)
			u.build(t, test.program, test.gets...)
			for _, want := range test.gets {
				module, version, _ := strings.Cut(want, "@")
				gatetest.Equal(t, u.output(t, "list", "-m", "-f", "{{.Version}}", module), version, "%s is", module)
			}
		})
	}
	t.Run("command", func(t *testing.T) {
		t.Parallel()
		u := newUser(t)
		u.run(t, "install", modulePath+"/cmd/headgate@v0.1.0")
		out, err := exec.CommandContext(t.Context(), filepath.Join(u.dir, "headgate"), "--version").CombinedOutput()
		if err != nil || string(out) != "headgate v0.1.0\n" {
			t.Errorf("%v: %s", err, out)
		}
	})
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
