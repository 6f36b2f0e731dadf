package plans

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxNesting is the deepest nesting of a file. The parser is recursive.
const maxNesting = 100

// reader reads YAML, and collects every fault. Its decoder would stop at the first.
type reader struct {
	faults []fault
	lines  map[string]int    // of the fields that are there, by path
	named  map[string]string // the names of the limits that are there, by path
}

func newReader() *reader {
	return &reader{lines: make(map[string]int), named: make(map[string]string)}
}

// readFunc reads the value of a field.
type readFunc func(path string, n ast.Node)

func (r *reader) fault(path, format string, args ...any) {
	r.faults = append(r.faults, fault{path, fmt.Sprintf(format, args...)})
}

// add adds faults of fields that have none yet.
func (r *reader) add(faults []fault) {
	known := make(map[string]bool, len(r.faults))
	for _, f := range r.faults {
		known[f.path] = true
	}
	for _, f := range faults {
		if !known[f.path] {
			r.faults = append(r.faults, f)
		}
	}
}

// parse returns the root of a text, or nil if it has none.
func (r *reader) parse(text []byte) ast.Node {
	if len(text) > maxFile {
		r.fault("", "has more than %d bytes", maxFile)
		return nil
	}
	if max(bytes.Count(text, []byte{'\n'}), bytes.Count(text, []byte{'\r'})) > maxLines {
		r.fault("", "has more than %d lines", maxLines)
		return nil
	}
	if nesting(string(text)) > maxNesting {
		r.fault("", "is nested more than %d levels deep", maxNesting)
		return nil
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // the parser takes it for a part of the first name
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var at interface {
			GetToken() *token.Token
			GetMessage() string
		}
		if errors.As(err, &at) && at.GetToken() != nil && at.GetToken().Position != nil {
			r.fault("", "line %d: %s", at.GetToken().Position.Line, at.GetMessage())
		} else {
			r.fault("", "%v", err)
		}
		return nil
	}
	switch {
	case len(file.Docs) == 0 || len(file.Docs) == 1 && file.Docs[0].Body == nil:
		r.fault("", "is empty")
	case len(file.Docs) > 1:
		r.fault("", "has %d documents: it must have one", len(file.Docs))
	default:
		return file.Docs[0].Body
	}
	return nil
}

// nesting returns a bound of how deep brackets, and marks of lists and keys, are nested.
func nesting(text string) (deepest int) {
	brackets, marks, starts := 0, 0, true
	for _, c := range text {
		switch c {
		case '\n':
			marks, starts = 0, true
			continue
		case '[', '{':
			brackets++
		case ']', '}':
			brackets = max(0, brackets-1)
		case '-', '?', '!', '&':
			if starts {
				marks++
			}
		case ' ', '\t':
			continue
		}
		starts = starts && strings.ContainsRune("-?!&:", c)
		deepest = max(deepest, brackets, marks)
	}
	return deepest
}

// entries calls each for the entries of a mapping.
func (r *reader) entries(path string, n ast.Node, each func(name, path string, value ast.Node)) {
	m, ok := n.(ast.MapNode)
	if !ok {
		r.fault(path, "is %s: it must be a mapping", describe(n))
		return
	}
	if path != "" {
		path += "."
	}
	first := make(map[string]int) // lines by name: a path may be that of two fields, as names have dots
	for it := m.MapRange(); it.Next(); {
		key := it.Key()
		if key.IsMergeKey() {
			r.fault(path+"<<", "is a merge key, which is not supported")
			continue
		}
		at := key.GetToken()
		name, line := at.Value, at.Position.Line
		if n := first[name]; n > 0 {
			r.fault(path+name, "is there twice: in line %d and in line %d", n, line)
			continue
		}
		first[name] = line
		if r.lines[path+name] == 0 {
			r.lines[path+name] = line
		}
		each(name, path+name, it.Value())
	}
}

// mapping reads a mapping of known fields.
func (r *reader) mapping(path string, n ast.Node, known map[string]readFunc) {
	r.entries(path, n, func(name, path string, n ast.Node) {
		if read := known[name]; read != nil {
			read(path, n)
			return
		}
		r.fault(path, "is no field here: there are %s", strings.Join(sortedKeys(known), ", "))
	})
}

// text reads a text.
func (r *reader) text(path string, n ast.Node) string {
	s, ok := n.(*ast.StringNode)
	if !ok || s.Value == "" {
		r.fault(path, "is %s: it must be a text", describe(n))
		return ""
	}
	return s.Value
}

// integer reads a decimal integer.
func (r *reader) integer(path string, n ast.Node) (int64, bool) {
	if i, ok := n.(*ast.IntegerNode); ok {
		digits := strings.TrimPrefix(i.Token.Value, "-")
		if n, err := strconv.ParseInt(strings.ReplaceAll(i.Token.Value, "_", ""), 10, 64); err == nil &&
			(digits == "0" || digits[0] != '0') {
			return n, true
		}
	}
	r.fault(path, "is %s: it must be a whole number such as 1000, below 2^63", describe(n))
	return 0, false
}

// duration reads a duration.
func (r *reader) duration(path string, n ast.Node) time.Duration {
	if s, ok := n.(*ast.StringNode); ok {
		if d, err := parseDuration(s.Value); err == nil {
			return d
		}
	}
	r.fault(path, "is %s: it must be a duration such as 500ms, 10s, 1m, 1h30m or 30d", describe(n))
	return 0
}

// parseDuration is time.ParseDuration with days of 24 hours in front.
func parseDuration(text string) (time.Duration, error) {
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, err
	}
	return time.ParseDuration(fmt.Sprintf("%dh%s", 24*n, rest))
}

func (r *reader) boolean(path string, n ast.Node) bool {
	b, ok := n.(*ast.BoolNode)
	if !ok {
		r.fault(path, "is %s: it must be true or false", describe(n))
		return false
	}
	return b.Value
}

// describe says what a value is.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return "empty"
	case *ast.StringNode:
		return fmt.Sprintf("%.80q", n.Value)
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		return "an anchor, an alias or a tag, which are not supported"
	case ast.MapNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case ast.ScalarNode:
		return fmt.Sprintf("%.80s", n.GetToken().Value)
	}
	return "something else"
}
