package wire

import (
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/llm/internal/jsonscan"
)

// meaning is what the values at a path mean: a role, and for some roles a name, such as that of a
// unit.
type meaning struct {
	role  jsonscan.Role
	name  string
	order int // among the paths of the same meaning
}

// compile makes the tree of nodes of a table. roles maps the meanings to roles. A meaning that ends
// with a colon takes a name.
func compile(paths map[string]string, roles map[string]jsonscan.Role) *node {
	root := &node{}
	// What counts everything below comes first, so that the paths below can say otherwise.
	for _, wide := range []bool{true, false} {
		stated := make(map[*node]bool)
		for _, name := range slices.Sorted(maps.Keys(paths)) {
			m := meaningOf(name, roles)
			for pattern := range strings.FieldsSeq(paths[name]) {
				for _, path := range expand(pattern) {
					m.order++
					if strings.HasSuffix(path, anyBelow) != wide {
						continue
					}
					n := nodeAt(root, path, m.role >= askModel && m.role <= lastAsk)
					if stated[n] {
						panic(path + " has two meanings")
					}
					stated[n] = true
					mark(n, m, wide)
				}
			}
		}
	}
	return root
}

// meaningOf returns the meaning of a name such as input or unit:page.
func meaningOf(name string, roles map[string]jsonscan.Role) meaning {
	kind, rest, named := strings.Cut(name, ":")
	if named {
		kind += ":"
	}
	role, ok := roles[kind]
	if !ok {
		panic(name + " has no meaning")
	}
	return meaning{role: role, name: rest}
}

// anyBelow ends a path to a value and everything below.
const anyBelow = ".**"

// nodeAt returns the node at a path and makes those that are missing. With watch every object on
// the way reports its keys.
func nodeAt(root *node, path string, watch bool) *node {
	at := root
	for key := range strings.SplitSeq(strings.TrimSuffix(path, anyBelow), ".") {
		at.Watch = at.Watch || watch
		name := strings.TrimRight(key, "[]")
		at = child(at, name)
		for range strings.Count(key, "[]") {
			if at.Each == nil {
				at.Each = below(at, "")
			}
			at = at.Each
		}
	}
	return at
}

// child returns the node for a key.
func child(at *node, key string) *node {
	for _, k := range at.Kids {
		if k.Key == key {
			return k
		}
	}
	k := below(at, key)
	at.Kids = append(at.Kids, k)
	return k
}

// below returns a new node below another one. It means what everything below that one means.
func below(at *node, key string) *node {
	n := &node{Key: key}
	if at.Rest != nil {
		n.Role, n.Rest, n.Watch = at.Rest.Role, at.Rest.Rest, at.Rest.Watch
	}
	return n
}

// mark gives a node a meaning.
func mark(n *node, m meaning, wide bool) {
	n.Role, n.Name, n.Order = m.role, m.name, m.order
	switch {
	case wide:
		n.Watch = n.Watch || m.role == tellUnnamed
		n.Rest = &node{Role: m.role, Watch: n.Watch}
		n.Rest.Rest = n.Rest
	case m.role == readRaw:
		n.Rest = nil // the strings within count with it
	}
}

// expand returns the paths of a pattern with alternatives in braces, which may nest.
func expand(pattern string) (paths []string) {
	from := strings.LastIndexByte(pattern, '{') // no other one is within it
	if from < 0 {
		return []string{pattern}
	}
	to := from + strings.IndexByte(pattern[from:], '}')
	for choice := range strings.SplitSeq(pattern[from+1:to], ",") {
		for _, path := range expand(pattern[:from] + choice + pattern[to+1:]) {
			if !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}
