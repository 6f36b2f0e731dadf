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
