package llm

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// recorder notes what a scanner tells a visitor.
type recorder struct{ notes []string }

func (r *recorder) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

func (r *recorder) key(s *scanner, n *node)              { r.note("key %s", s.text()) }
func (r *recorder) begin(s *scanner, n *node, kind byte) { r.note("begin %s %c", n.key, kind) }
func (r *recorder) end(s *scanner, n *node)              { r.note("end %s", n.key) }
func (r *recorder) scalar(s *scanner, n *node, kind byte) {
	r.note("scalar %s %c %s %d", n.key, kind, s.text(), s.size)
}

// record scans the pieces and returns the notes and whether the document is complete.
func record(root *node, pieces ...[]byte) ([]string, bool) {
	var r recorder
	s := scanner{visit: &r, root: root}
	s.reset()
	for _, p := range pieces {
		s.scan(p)
	}
	return r.notes, s.finish()
}

// everything is a table in which every value has a node.
func everything() *node {
	n := &node{key: "*"}
	n.each, n.rest = n, n
	return n
}

// drawJSON draws a document, most often a valid one.
func drawJSON(r *rapid.T) []byte {
	var value func(depth int) string
	space := func() string { return rapid.SampledFrom([]string{"", "", " ", "\n\t", "\r"}).Draw(r, "space") }
	text := func() string {
		return `"` + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
			"a", "usage", "é", "😀", `\n`, `\"`, `\\`, `\/`, `\u0041`, `\u00e9`, `\uD83D`, `\ude00`, `\ud83d\ude00`, strings.Repeat("x", 100),
		}), 0, 6).Draw(r, "text"), "") + `"`
	}
	value = func(depth int) string {
		kind := rapid.IntRange(0, 6).Draw(r, "kind")
		if depth > 20 {
			kind = 0
		}
		switch kind {
		case 0, 1:
			return space() + text() + space()
		case 2:
			return space() + rapid.SampledFrom([]string{"0", "-0", "12", "1.5", "-1e+5", "1E5", "0.25e-3", "123456789012345678901234567890"}).Draw(r, "number") + space()
		case 3:
			return space() + rapid.SampledFrom([]string{"true", "false", "null"}).Draw(r, "literal") + space()
		}
		var parts []string
		for range rapid.IntRange(0, 3).Draw(r, "members") {
			part := value(depth + 1)
			if kind == 4 {
				part = space() + text() + space() + ":" + part
			}
			parts = append(parts, part)
		}
		inner := strings.Join(parts, ",")
		if len(parts) == 0 {
			inner = space()
		}
		if kind == 4 {
			return space() + "{" + inner + "}" + space()
		}
		return space() + "[" + inner + "]" + space()
	}
	doc := []byte(value(0))
	if rapid.IntRange(0, 2).Draw(r, "damage") == 0 && len(doc) > 0 {
		at := rapid.IntRange(0, len(doc)-1).Draw(r, "at")
		switch rapid.IntRange(0, 2).Draw(r, "how") {
		case 0:
			doc[at] = rapid.SampledFrom([]byte("{}[],:\"\\-+.eE019tfn ux\x00\x1f\xff")).Draw(r, "byte")
		case 1:
			doc = append(doc[:at], doc[at+1:]...)
		default:
			doc = doc[:at]
		}
	}
	return doc
}

func TestScannerAcceptsWhatJSONValidAccepts(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		doc := drawJSON(r)
		_, ok := record(everything(), doc)
		if ok != json.Valid(doc) {
			r.Fatalf("accepted %v: %s", ok, doc)
		}
	})
}

func TestScannerIgnoresSplits(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		doc := drawJSON(r)
		want, wantOK := record(everything(), doc)
		got, ok := record(everything(), draw(r, doc)...)
		if ok != wantOK || !reflect.DeepEqual(got, want) {
			r.Fatalf("%s:\n%v %v, want\n%v %v", doc, ok, got, wantOK, want)
		}
	})
}

func TestScannerDecodesStrings(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		doc := drawJSON(r)
		var want string
		if json.Unmarshal(doc, &want) != nil || !utf8.Valid(doc) {
			return
		}
		if strings.TrimSpace(string(doc)) == "null" {
			return
		}
		shown := want[:min(len(want), maxText)]
		notes, _ := record(everything(), draw(r, doc)...)
		if note := fmt.Sprintf("scalar * \" %s %d", shown, len(want)); len(notes) != 1 || notes[0] != note {
			r.Fatalf("%q, want %q", notes, note)
		}
	})
}

func TestScannerFollowsPaths(t *testing.T) {
	root := object("", 0, object("a", 0, object("b", 0)), array("list", object("item", 0, object("c", 0))))
	for _, c := range []struct {
		doc  string
		want []string
	}{
		{`{"a":{"b":1,"x":{"b":2}},"b":3}`, []string{"begin  {", "begin a {", "scalar b 0 1 1", "end a", "end "}},
		{`{"\u0061":{"\u0062":1}}`, []string{"begin  {", "begin a {", "scalar b 0 1 1", "end a", "end "}},
		{`{"list":[{"c":true},[{"c":1}],null]}`, []string{"begin  {", "begin list [", "begin item {", "scalar c t  0", "end item",
			"begin item [", "end item", "scalar item n  0", "end list", "end "}},
		{`{"x":{"a":{"b":1}},"y":[{"a":{"b":1}}],"z":"{\"a\":{\"b\":1}}"}`, []string{"begin  {", "end "}},
		{`{"` + strings.Repeat("a", 300) + `":1}`, []string{"begin  {", "end "}},
	} {
		got, ok := record(root, []byte(c.doc))
		if !ok || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n%q, want\n%q", c.doc, got, c.want)
		}
	}
}

func TestScannerBoundsDepth(t *testing.T) {
	nested := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	if _, ok := record(everything(), nested(maxDepth)); !ok {
		t.Errorf("depth %d was refused", maxDepth)
	}
	if _, ok := record(everything(), nested(maxDepth+1)); ok {
		t.Errorf("depth %d was accepted", maxDepth+1)
	}
}
