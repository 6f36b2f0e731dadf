package house_test

import (
	"go/ast"
	"go/token"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

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
