package main

import (
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
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = u.dir, u.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v: %s", args, err, out)
	}
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

// go get finds the exporters' modules, which require the root module by the version of its tag.
func TestGoGetOfExporters(t *testing.T) {
	t.Parallel()
	for _, exporter := range []string{"observe/prometheus", "observe/otel"} {
		t.Run(exporter, func(t *testing.T) {
			u := newUser(t, exporter)
			program := "package main\n\nimport _ \"" + path.Join(modulePath, exporter) + "\"\n\nfunc main() {}\n"
			gatetest.NoError(t, os.WriteFile(filepath.Join(u.dir, "main.go"), []byte(program), 0o600))
			u.run(t, "mod", "init", "example.com/user")
			u.run(t, "get", path.Join(modulePath, exporter)+"@v0.1.0")
			u.run(t, "build", ".")
		})
	}
}
