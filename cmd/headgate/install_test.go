package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// publish writes a module into a file tree that is a module proxy.
func publish(t *testing.T, proxy, dir string, version module.Version) {
	t.Helper()
	path, err := module.EscapePath(version.Path)
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(proxy, filepath.FromSlash(path), "@v")
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"list": version.Version + "\n", version.Version + ".mod": string(mod),
		version.Version + ".info": `{"Version":"` + version.Version + `"}`,
	} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(at, version.Version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := zip.CreateFromDir(f, version, dir); err != nil {
		t.Fatal(err)
	}
}

// Once the root module and this one are tagged v0.1.0, go install builds the command: go.mod has no
// replace, and go.work does not count there.
func TestGoInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the command and all that it imports")
	}
	t.Parallel()
	const path = "github.com/headgate/headgate"
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	proxy, bin := t.TempDir(), t.TempDir()
	publish(t, proxy, root, module.Version{Path: path, Version: "v0.1.0"})
	publish(t, proxy, filepath.Join(root, "cmd", "headgate"), module.Version{Path: path + "/cmd/headgate", Version: "v0.1.0"})
	known, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	cache, next, _ := strings.Cut(strings.TrimSpace(string(known)), "\n")
	cmd := exec.CommandContext(t.Context(), "go", "install", path+"/cmd/headgate@v0.1.0")
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "GOMODCACHE="+t.TempDir(), "GOFLAGS=-modcacherw -trimpath", "GOWORK=",
		"GOPROXY=file://"+proxy+",file://"+cache+"/cache/download,"+next, "GONOSUMDB=*")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "headgate"), "--version").CombinedOutput()
	if err != nil || string(out) != "headgate v0.1.0\n" {
		t.Errorf("%v: %s", err, out)
	}
}
