package house_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
)

// pages returns README, CONTRIBUTING and the pages under docs.
func pages(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("docs/*.md")
	more, _ := filepath.Glob("docs/reference/*.md")
	if err != nil || len(pages) == 0 || len(more) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	return append(append(pages, more...), "README.md", "CONTRIBUTING.md")
}

func read(t *testing.T, path string) string {
	t.Helper()
	path = gatetest.Must(filepath.Abs(path))(t) // go test looks whether it has changed
	return string(gatetest.Must(os.ReadFile(path))(t))
}

// block is a Go block of a page.
type block struct {
	page string
	line int // of the first line of code
	code string
}

func blocks(t *testing.T, page string) (all []block) {
	t.Helper()
	text := read(t, page)
	for _, at := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatchIndex(text, -1) {
		line := 1 + strings.Count(text[:at[2]], "\n")
		all = append(all, block{page, line, text[at[2]:at[3]]})
	}
	return all
}

// elsewhere are the folders of modules of their own, and the packages that blocks import from there.
var elsewhere = map[string][]string{
	"observe/prometheus": {module + "/observe/prometheus", "github.com/prometheus/client_golang/prometheus/promhttp"},
	"observe/otel":       {module + "/observe/otel"},
}

// given is the head of a file for a block: the packages that a block may name without importing them, and the
// variables that it may use without declaring them.
var given = sync.OnceValue(func() string {
	return string(core.Must(os.ReadFile(core.Must(filepath.Abs("internal/house/testdata/snippet.txt")))))
})

// file makes a Go file of a block: a program as it is, declarations below the imports, and statements in a function that
// may return an error.
func (b block) file() string {
	if strings.HasPrefix(b.code, "package ") {
		return fmt.Sprintf("//line %s:%d\n%s", b.page, b.line, b.code)
	}
	line := fmt.Sprintf("//line %s:%d\n", b.page, b.line)
	declarations := given() + line + b.code
	if _, err := parser.ParseFile(token.NewFileSet(), "", declarations, parser.SkipObjectResolution); err == nil {
		return declarations
	}
	return given() + "func snippet() error {\n" + line + b.code + "\nreturn nil\n}\n"
}

// exports returns where the compiled packages are that the blocks import.
func exports(t *testing.T) map[string]string {
	t.Helper()
	files := make(map[string]string)
	list := func(folder string, packages []string) {
		var complaint bytes.Buffer
		cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, packages...)...)
		cmd.Dir, cmd.Stderr = folder, &complaint
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, &complaint)
		}
		for line := range strings.Lines(string(out)) {
			path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
			files[path] = file
		}
	}
	var here, away []string
	for folder, packages := range elsewhere {
		list(folder, packages)
		away = append(away, packages...)
	}
	for _, m := range regexp.MustCompile(`(?m)^\t(?:\w+ )?"([^"]+)"$`).FindAllStringSubmatch(given(), -1) {
		if !slices.Contains(away, m[1]) {
			here = append(here, m[1])
		}
	}
	list(".", here) // last: what both have is that of this module
	return files
}

// Every Go block of README and docs is formatted and compiles. A name that a block declares and does not use is no error.
func TestDocumentationCompiles(t *testing.T) {
	files := exports(t)
	fset := token.NewFileSet()
	compiled := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
	examples := ""
	for _, name := range []string{"nethttp", "chi", "gin", "echo"} {
		examples += read(t, filepath.Join("_examples", name, "main.go"))
	}
	recipes := recipes(t)
	count := 0
	for _, page := range pages(t) {
		for _, b := range blocks(t, page) {
			count++
			gatetest.Equal(t, string(gatetest.Must(format.Source([]byte(b.code)))(t)), b.code, "%s:%d", b.page, b.line)
			if strings.Contains(strings.ReplaceAll(examples, "\n\t", "\n"), "\n"+b.code) {
				continue // it compiles there
			}
			if page == "README.md" && strings.Contains(b.code, "tenantOf") {
				continue // TestReadmeProgramsPassTheirTest compiles it
			}
			if strings.Contains(recipes, "\n"+b.code) {
				continue // its test runs it
			}
			if page == filepath.Join("docs", "recipes.md") {
				t.Errorf("%s:%d does not stand in an example", b.page, b.line)
				continue
			}
			file, err := parser.ParseFile(fset, "", b.file(), parser.SkipObjectResolution)
			if err != nil {
				t.Errorf("%s:%d: %v", b.page, b.line, err)
				continue
			}
			config := types.Config{Importer: compiled, Error: func(err error) {
				if e, ok := err.(types.Error); !ok || !e.Soft {
					t.Error(err)
				}
			}}
			_, _ = config.Check("snippet", fset, []*ast.File{file}, nil) // Error is told of every error
		}
	}
	if count < 20 {
		t.Errorf("%d blocks", count)
	}
}

// recipes returns the programs that docs/recipes.md and docs/reference/frameworks.md show, whose tests
// run them.
func recipes(t *testing.T) (all string) {
	t.Helper()
	for _, folder := range []string{"recipes", "frameworks"} {
		files := gatetest.Must(filepath.Glob(filepath.Join("_examples", folder, "*.go")))(t)
		for _, f := range files {
			all += read(t, f)
		}
	}
	return all
}

// Every file that docs/architecture.md and docs/reference/ways.md name exists, below the folder that it
// names.
func TestArchitectureNamesFiles(t *testing.T) {
	var files []string
	gatetest.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		files = append(files, "/"+filepath.ToSlash(path))
		return err
	}))
	page := read(t, filepath.Join("docs", "architecture.md")) + read(t, filepath.Join("docs", "reference", "ways.md"))
	named := regexp.MustCompile("`([\\w./]+\\.(?:go|lua))`").FindAllStringSubmatch(page, -1)
	for _, m := range named {
		if !slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix(f, "/"+m[1]) }) {
			t.Errorf("there is no %s", m[1])
		}
	}
	if len(named) < 20 {
		t.Errorf("docs/architecture.md names %d files", len(named))
	}
}

var link = regexp.MustCompile(`(?:\]\(|src=")([^)\s"]+)[)"]`)

// Links within the repository lead somewhere, headings included.
func TestDocumentationLinks(t *testing.T) {
	for _, page := range pages(t) {
		if page == filepath.Join("docs", "reference", "benchmarks.md") { // a program writes it
			continue
		}
		text := read(t, page)
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			path, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if heading != "" && !strings.Contains(anchors(read(t, target)), " "+heading+" ") {
				t.Errorf("%s: %s has no heading %s", page, target, heading)
			}
		}
	}
}

// anchors returns the anchors of a page's headings, each between spaces.
func anchors(text string) string {
	all := " "
	for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(h[1]), "")
		all += strings.ReplaceAll(name, " ", "-") + " "
	}
	return all
}
