package house_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/gatetest"
)

// room is a type-checked package of this module, without its tests.
type room struct {
	path  string // below the module, "." for the root
	types *types.Package
	info  *types.Info
	files []roomFile
}

type roomFile struct {
	name string // without its folder
	ast  *ast.File
}

func loadRooms(t *testing.T) []room {
	t.Helper()
	rooms := gatetest.Must(rooms())(t)
	return rooms
}

// rooms type-checks the packages of the module, once for all tests.
var rooms = sync.OnceValues(func() ([]room, error) {
	packages, err := listed()
	if err != nil {
		return nil, err
	}
	// The compiler's export data stands for imports, so that no import is checked from its source.
	export := make(map[string]string)
	for _, p := range packages {
		export[p.ImportPath] = p.Export
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(export[path])
	})
	var rooms []room
	for _, p := range packages {
		if !p.isOurs() || len(p.GoFiles) == 0 {
			continue
		}
		r, err := p.check(fset, imports)
		if err != nil {
			return nil, err
		}
		rooms = append(rooms, r)
	}
	return rooms, nil
})

// listedPackage is what go list tells about a package.
type listedPackage struct {
	ImportPath, Dir string
	Export          string // file of the compiler's export data
	GoFiles         []string
	Imports, Deps   []string
	Module          *struct{ Path string } // nil in the standard library
}

// isOurs reports whether the package is one of this module.
func (p listedPackage) isOurs() bool { return p.Module != nil && p.Module.Path == module }

// modules returns the modules of these packages and of all that they import.
func modules(t *testing.T, isRoot func(listedPackage) bool) (all []string) {
	t.Helper()
	of, linked := make(map[string]string), make(map[string]bool)
	for _, p := range listPackages(t) {
		if p.Module != nil {
			of[p.ImportPath] = p.Module.Path
		}
		if isRoot(p) {
			for _, path := range append(p.Deps, p.ImportPath) {
				linked[path] = true
			}
		}
	}
	for path := range linked {
		if of[path] != "" {
			all = append(all, of[path])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func listPackages(t *testing.T) []listedPackage {
	t.Helper()
	packages := gatetest.Must(listed())(t)
	return packages
}

// listed lists the packages of the module and all that they import, once for all tests.
var listed = sync.OnceValues(func() ([]listedPackage, error) {
	cmd := exec.Command("go", "list", "-deps", "-export",
		"-json=ImportPath,Dir,Export,GoFiles,Imports,Deps,Module", "./...")
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, &complaint)
	}
	var packages []listedPackage
	for list := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := list.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
})

func (p listedPackage) check(fset *token.FileSet, imports types.Importer) (room, error) {
	path := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
	r := room{path: path, info: &types.Info{
		Defs: make(map[*ast.Ident]types.Object),
		Uses: make(map[*ast.Ident]types.Object),
	}}
	if path == "" {
		r.path = "."
	}
	var parsed []*ast.File
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return room{}, err
		}
		parsed = append(parsed, f)
		r.files = append(r.files, roomFile{name: name, ast: f})
	}
	var err error
	config := types.Config{Importer: imports}
	r.types, err = config.Check(p.ImportPath, fset, parsed, r.info)
	return r, err
}

const maxComplexity = 15 // of a function

func TestFunctionsAreSimple(t *testing.T) {
	for _, r := range loadRooms(t) {
		for _, f := range r.files {
			for _, d := range f.ast.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				if c := complexity(fn); c > maxComplexity {
					t.Errorf("%s/%s: %s has a cyclomatic complexity of %d, more than %d",
						r.path, f.name, fn.Name.Name, c, maxComplexity)
				}
			}
		}
	}
}

// complexity counts the ways through a function as gocyclo does, which adds the functions within.
func complexity(fn *ast.FuncDecl) int {
	ways := 1
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			ways++
		case *ast.CaseClause:
			if n.List != nil { // not default
				ways++
			}
		case *ast.CommClause:
			if n.Comm != nil {
				ways++
			}
		case *ast.BinaryExpr:
			if n.Op == token.LAND || n.Op == token.LOR {
				ways++
			}
		}
		return true
	})
	return ways
}

// Folders have no circles either: the packages below one folder, taken together, do not import
// those below another that imports them.
func TestFoldersHaveNoCircles(t *testing.T) {
	imports := make(map[string]map[string]bool) // of folders, by path
	for _, r := range loadRooms(t) {
		if slices.Contains(testOnly, r.path) {
			continue
		}
		for _, i := range r.types.Imports() {
			if below, ours := strings.CutPrefix(i.Path(), module+"/"); ours {
				parts := divergence(apart(r.path), apart(below))
				if imports[parts[0]] == nil {
					imports[parts[0]] = make(map[string]bool)
				}
				imports[parts[0]][parts[1]] = true
			}
		}
	}
	visited := make(map[string]bool)
	var visit func(folder string, above []string)
	visit = func(folder string, above []string) {
		if i := slices.Index(above, folder); i >= 0 {
			t.Errorf("folders import each other: %s", strings.Join(append(above[i:], folder), " -> "))
		}
		if visited[folder] {
			return
		}
		visited[folder] = true
		for below := range imports[folder] {
			visit(below, append(slices.Clone(above), folder))
		}
	}
	for folder := range imports {
		visit(folder, nil)
	}
}

// apart returns the path of a package, as if internal/inspect stood at the root: it is above core.
// Package admin and the command share it, and Go lets no other module import what is internal to one
// of them.
func apart(path string) string {
	if path == "internal/inspect" {
		return "inspect"
	}
	return path
}

// divergence returns the two folders, side by side, below which a package and the one it imports
// stand. Where one stands below the other, that is the package itself.
func divergence(importer, imported string) [2]string {
	a, b := strings.Split(importer, "/"), strings.Split(imported, "/")
	same := 0
	for same < len(a) && same < len(b) && a[same] == b[same] {
		same++
	}
	side := func(parts []string) string {
		if same == len(parts) {
			return strings.Join(parts, "/") + " itself"
		}
		return strings.Join(parts[:same+1], "/")
	}
	return [2]string{side(a), side(b)}
}

// A test that sleeps does so in a bubble, where that takes no time, or says on the line why.
func TestSleepsHaveReasons(t *testing.T) {
	listed, err := exec.Command("git", "ls-files", "*_test.go").Output()
	if err != nil {
		t.Skipf("no checkout: %v", err)
	}
	const sleep = "time." + "Sleep("
	for _, path := range strings.Fields(string(listed)) {
		for _, function := range strings.Split(read(t, path), "\n}\n") {
			if strings.Contains(function, "synctest.") {
				continue
			}
			for line := range strings.Lines(function) {
				if call := strings.Index(line, sleep); call >= 0 && !strings.Contains(line[call:], "//") {
					t.Errorf("%s: %q has no reason", path, strings.TrimSpace(line))
				}
			}
		}
	}
}
