package house_test

import (
	"go/types"
	"regexp"
	"slices"
	"testing"
)

// tables are the files that have each algorithm with a state: tests, tools and pages.
var tables = []string{
	"core/agree_test.go", "core/algorithm.go", "core/conformance_test.go", "core/layouts_test.go",
	"docs/limits.md", "docs/reference/sizing.md", "internal/inspect/stated.go", "internal/inspect/text.go",
	"internal/stored/reader_test.go", "lab/bench/sizing/kinds.go",
}

func TestEveryAlgorithmIsInEveryTable(t *testing.T) {
	rooms := loadRooms(t)
	core := rooms[slices.IndexFunc(rooms, func(r room) bool { return r.path == "core" })].types.Scope()
	algorithm := core.Lookup("Algorithm").Type().Underlying().(*types.Interface)
	found := 0
	for _, name := range core.Names() {
		figures, ok := core.Lookup(name).Type().Underlying().(*types.Struct)
		if !ok || figures.NumFields() == 0 || !types.Implements(core.Lookup(name).Type(), algorithm) {
			continue
		}
		found++
		word := regexp.MustCompile(`\b` + name + `\b`)
		for _, file := range tables {
			if !word.MatchString(read(t, file)) {
				t.Errorf("%s has no %s", file, name)
			}
		}
	}
	if found < 7 {
		t.Errorf("%d algorithms found", found)
	}
}
