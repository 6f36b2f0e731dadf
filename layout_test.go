package headgate_test

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// Bounds of each package, see docs/architecture.md.
const (
	maxLines      = 300 // of a file
	maxComplexity = 15  // of a function
)

// Bounds of core, whose page every user reads.
const (
	maxCoreFiles = 29
	maxCoreLines = 4300
	maxCoreNames = 255
)

func TestFilesAreShort(t *testing.T) {
	for _, r := range loadRooms(t) {
		for _, f := range r.files {
			if f.lines > maxLines {
				t.Errorf("%s/%s has %d lines, more than %d", r.path, f.name, f.lines, maxLines)
			}
		}
	}
}

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

func TestCoreIsSmall(t *testing.T) {
	for _, r := range loadRooms(t) {
		if r.path != "core" {
			continue
		}
		lines := 0
		for _, f := range r.files {
			lines += f.lines
		}
		names := exportedNames(r.types)
		t.Logf("core: %d files, %d lines, %d exported names", len(r.files), lines, names)
		if n := len(r.files); n > maxCoreFiles {
			t.Errorf("core has %d files, more than %d", n, maxCoreFiles)
		}
		if lines > maxCoreLines {
			t.Errorf("core has %d lines, more than %d", lines, maxCoreLines)
		}
		if names > maxCoreNames {
			t.Errorf("core exports %d names, more than %d", names, maxCoreNames)
		}
	}
}

// exportedNames counts the names on a package's page at pkg.go.dev: constants, variables,
// functions and types, and the methods and fields of types.
func exportedNames(p *types.Package) int {
	n := 0
	count := func(o types.Object) {
		if o.Exported() {
			n++
		}
	}
	for _, name := range p.Scope().Names() {
		obj := p.Scope().Lookup(name)
		if count(obj); !obj.Exported() {
			continue
		}
		t, ok := obj.Type().(*types.Named)
		if _, isType := obj.(*types.TypeName); !ok || !isType {
			continue
		}
		for m := range t.Methods() {
			count(m)
		}
		switch u := t.Underlying().(type) {
		case *types.Struct:
			for f := range u.Fields() {
				count(f)
			}
		case *types.Interface:
			for m := range u.ExplicitMethods() {
				count(m)
			}
		}
	}
	return n
}

// A reader finds a type of core, or of a package below it, in the file of its name: a word of the
// type's name, or the last of the file's. A file may hold further types that belong to such a type: one declaration of the
// file names both, or one of them implements the other.
func TestPublicTypesStandInTheFileOfTheirName(t *testing.T) {
	for _, r := range loadRooms(t) {
		if r.path != "core" && !strings.HasPrefix(r.path, "core/") {
			continue
		}
		for _, f := range r.files {
			for _, name := range r.strangers(f) {
				t.Errorf("%s/%s: %s belongs to no type of the file's name", r.path, f.name, name)
			}
		}
	}
}

// strangers returns the public types in a file that belong to no type of the file's name.
func (r room) strangers(f roomFile) []string {
	declared := make(map[*types.TypeName]bool) // and whether it is at home
	words := strings.Split(strings.TrimSuffix(f.name, ".go"), "_")
	stem := strings.TrimSuffix(words[len(words)-1], "s")
	for id, obj := range r.info.Defs {
		t, ok := obj.(*types.TypeName)
		here := f.ast.FileStart <= id.Pos() && id.Pos() < f.ast.FileEnd
		if ok && here && t.Parent() == r.types.Scope() {
			declared[t] = strings.Contains(strings.ToLower(t.Name()), stem)
		}
	}
	together := r.namedTogether(f, declared)
	for changed := true; changed; {
		changed = false
		for _, pair := range together {
			if declared[pair[0]] != declared[pair[1]] {
				declared[pair[0]], declared[pair[1]], changed = true, true, true
			}
		}
	}
	var strangers []string
	for t, atHome := range declared {
		if t.Exported() && !atHome {
			strangers = append(strangers, t.Name())
		}
	}
	slices.Sort(strangers)
	return strangers
}

type typePair [2]*types.TypeName

// namedTogether returns the pairs of a file's types that one of its declarations names, where a
// function counts by its receiver, parameters and results, and those of which one implements the
// other.
func (r room) namedTogether(f roomFile, declared map[*types.TypeName]bool) []typePair {
	var pairs []typePair
	for _, d := range f.ast.Decls {
		var nodes []ast.Node
		switch d := d.(type) {
		case *ast.FuncDecl:
			signature := *d
			signature.Body = nil
			nodes = append(nodes, &signature)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					nodes = append(nodes, s)
				}
			}
		}
		for _, n := range nodes {
			pairs = append(pairs, r.typesIn(n, declared)...)
		}
	}
	for a := range declared {
		for b := range declared {
			i, ok := b.Type().Underlying().(*types.Interface)
			if ok && a != b && types.Implements(a.Type(), i) {
				pairs = append(pairs, typePair{a, b})
			}
		}
	}
	return pairs
}

// typesIn pairs the first of the declared types that a node names with each other one.
func (r room) typesIn(n ast.Node, declared map[*types.TypeName]bool) []typePair {
	var pairs []typePair
	var first *types.TypeName
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		t, _ := r.info.ObjectOf(id).(*types.TypeName)
		if _, ok := declared[t]; !ok {
			return true
		}
		if first == nil {
			first = t
		}
		pairs = append(pairs, typePair{first, t})
		return true
	})
	return pairs
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
