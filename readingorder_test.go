package headgate_test

import (
	"go/ast"
	"go/types"
	"math/rand/v2"
	"strings"
	"testing"
)

// maxBackward is how many percent of the arrows between the files of a package may run against its
// reading order. A single one may in any package.
const maxBackward = 25

// A package can be read from its first file to its last in the order of the flow: callers first,
// and what they call below. An arrow leads from a file to each other file that declares a method
// or package-level name that it uses, and runs backward if that file stands above. Fields make no
// arrows, because a file that uses one has got the struct by a name that makes one.
//
// No list states the order: readingOrder finds the best one, so the share is the least that any
// reader meets. A tool that reads names without their types sees methods of the same name as one,
// and counts up to twice the share.
func TestFilesReadInOrder(t *testing.T) {
	for _, r := range loadRooms(t) {
		uses := r.uses()
		arrows := 0
		for _, used := range uses {
			for _, u := range used {
				if u {
					arrows++
				}
			}
		}
		if arrows == 0 {
			continue
		}
		order, backward := readingOrder(uses)
		var names []string
		for _, i := range order {
			names = append(names, strings.TrimSuffix(r.files[i].name, ".go"))
		}
		t.Logf("%s: %d files, %d arrows, %d backward (%d %%)",
			r.path, len(order), arrows, backward, backward*100/arrows)
		if backward > 1 && backward*100 > maxBackward*arrows {
			t.Errorf("%s: %d of %d arrows run backward, more than %d %%, in the order %s",
				r.path, backward, arrows, maxBackward, strings.Join(names, " "))
		}
	}
}

// uses reports for files a and b at [a][b] whether a has an arrow to b.
func (r room) uses() [][]bool {
	declaredIn := make(map[types.Object]int)
	for i, f := range r.files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				obj := r.info.Defs[id]
				fn, isFunc := obj.(*types.Func)
				isMethod := isFunc && fn.Signature().Recv() != nil
				if obj != nil && (isMethod || obj.Parent() == r.types.Scope()) {
					declaredIn[obj] = i
				}
			}
			return true
		})
	}
	uses := make([][]bool, len(r.files))
	for i, f := range r.files {
		uses[i] = make([]bool, len(r.files))
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				obj := r.info.Uses[id]
				if fn, ok := obj.(*types.Func); ok {
					obj = fn.Origin()
				}
				if used, ok := declaredIn[obj]; ok && used != i {
					uses[i][used] = true
				}
			}
			return true
		})
	}
	return uses
}

// readingOrder returns an order of files in which few arrows run backward, and their number. To
// find the least number is NP-hard (minimum feedback arc set), so readingOrder moves single files
// to better places until no move helps, from several starts, which are the same in every run.
func readingOrder(uses [][]bool) (order []int, backward int) {
	random := rand.New(rand.NewPCG(1, 1))
	for start := range 40 {
		candidate := random.Perm(len(uses))
		improve(candidate, uses)
		if n := countBackward(candidate, uses); start == 0 || n < backward {
			order, backward = candidate, n
		}
	}
	return order, backward
}

// improve moves files until no single move reduces the arrows that run backward.
func improve(order []int, uses [][]bool) {
	for moved := true; moved; {
		moved = false
		for from := range order {
			if to := bestPlace(order, uses, from); to != from {
				move(order, from, to)
				moved = true
			}
		}
	}
}

// move moves the file at one position to another.
func move(order []int, from, to int) {
	file := order[from]
	if from < to {
		copy(order[from:to], order[from+1:to+1])
	} else {
		copy(order[to+1:from+1], order[to:from])
	}
	order[to] = file
}

// bestPlace returns the position at which the file at from has the fewest arrows that run backward.
func bestPlace(order []int, uses [][]bool, from int) int {
	// crossed returns by how much the arrows change when the file passes another one upward.
	crossed := func(other int) int {
		change := 0
		if uses[order[from]][other] {
			change--
		}
		if uses[other][order[from]] {
			change++
		}
		return change
	}
	best, least := from, 0
	for to, change := from-1, 0; to >= 0; to-- {
		if change += crossed(order[to]); change < least {
			best, least = to, change
		}
	}
	for to, change := from+1, 0; to < len(order); to++ {
		if change -= crossed(order[to]); change < least {
			best, least = to, change
		}
	}
	return best
}

func countBackward(order []int, uses [][]bool) int {
	n := 0
	for i, file := range order {
		for _, above := range order[:i] {
			if uses[file][above] {
				n++
			}
		}
	}
	return n
}

func TestReadingOrder(t *testing.T) {
	const a, b, c, d = 0, 1, 2, 3
	arrows := func(pairs ...[2]int) [][]bool {
		uses := make([][]bool, 4)
		for i := range uses {
			uses[i] = make([]bool, 4)
		}
		for _, p := range pairs {
			uses[p[0]][p[1]] = true
		}
		return uses
	}
	for name, test := range map[string]struct {
		uses     [][]bool
		backward int
	}{
		"chain":       {arrows([2]int{d, b}, [2]int{b, a}, [2]int{a, c}), 0},
		"circle":      {arrows([2]int{a, b}, [2]int{b, c}, [2]int{c, a}), 1},
		"two circles": {arrows([2]int{a, b}, [2]int{b, a}, [2]int{c, d}, [2]int{d, c}), 2},
		"shared edge": {arrows([2]int{a, b}, [2]int{b, c}, [2]int{c, a}, [2]int{b, d}, [2]int{d, a}), 1},
	} {
		order, backward := readingOrder(test.uses)
		if backward != test.backward {
			t.Errorf("%s: %d arrows run backward in %v, want %d", name, backward, order, test.backward)
		}
	}
}
