package jsonscan_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/llm/internal/jsonscan"
)

// recorder notes the calls that a visitor gets.
type recorder struct{ notes []string }

func (r *recorder) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

func (r *recorder) Key(s *jsonscan.Scanner, _ *jsonscan.Node) { r.note("key %s", s.Text()) }

func (r *recorder) Begin(_ *jsonscan.Scanner, n *jsonscan.Node, kind byte) {
	r.note("begin %s %c", n.Key, kind)
}

func (r *recorder) End(_ *jsonscan.Scanner, n *jsonscan.Node) { r.note("end %s", n.Key) }

func (r *recorder) Scalar(s *jsonscan.Scanner, n *jsonscan.Node, kind byte) {
	r.note("scalar %s %c %s %d", n.Key, kind, s.Text(), s.Size())
}

// record scans the pieces and returns the notes and whether the document is complete.
func record(root *jsonscan.Node, pieces ...[]byte) ([]string, bool) {
	var r recorder
	s := jsonscan.New(root, &r)
	for _, p := range pieces {
		s.Scan(p)
	}
	return r.notes, s.Finish()
}

// everything is a table in which every value has a node.
func everything() *jsonscan.Node {
	n := &jsonscan.Node{Key: "*"}
	n.Each, n.Rest = n, n
	return n
}

// drawJSON draws a document, most often a valid one.
func drawJSON(r *rapid.T) []byte {
	var value func(depth int) string
	spaces := rapid.SampledFrom([]string{"", "", " ", "\n\t", "\r"})
	space := func() string { return spaces.Draw(r, "space") }
	text := func() string {
		return `"` + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
			"a", "usage", "é", "😀", `\n`, `\"`, `\\`, `\/`,
			`\u0041`, `\u00e9`, `\uD83D`, `\ude00`, `\ud83d\ude00`, strings.Repeat("x", 100),
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
			return space() + rapid.SampledFrom([]string{
				"0", "-0", "12", "1.5", "-1e+5", "1E5", "0.25e-3", "123456789012345678901234567890",
			}).Draw(r, "number") + space()
		case 3:
			literals := rapid.SampledFrom([]string{"true", "false", "null"})
			return space() + literals.Draw(r, "literal") + space()
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
			damage := rapid.SampledFrom([]byte("{}[],:\"\\-+.eE019tfn ux\x00\x1f\xff"))
			doc[at] = damage.Draw(r, "byte")
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
		gatetest.Need(r, ok, json.Valid(doc), "accepted (%s)", doc)
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
		shown := want[:min(len(want), jsonscan.MaxText)]
		notes, _ := record(everything(), draw(r, doc)...)
		if note := fmt.Sprintf("scalar * \" %s %d", shown, len(want)); len(notes) != 1 ||
			notes[0] != note {
			r.Fatalf("%q, want %q", notes, note)
		}
	})
}

func TestScannerFollowsPaths(t *testing.T) {
	type nodes = []*jsonscan.Node
	root := &jsonscan.Node{Kids: nodes{
		{Key: "a", Kids: nodes{{Key: "b"}}},
		{Key: "list", Each: &jsonscan.Node{Key: "item", Kids: nodes{{Key: "c"}}}},
	}}
	for _, c := range []struct {
		doc  string
		want []string
	}{
		{`{"a":{"b":1,"x":{"b":2}},"b":3}`,
			[]string{"begin  {", "begin a {", "scalar b 0 1 1", "end a", "end "}},
		{`{"\u0061":{"\u0062":1}}`,
			[]string{"begin  {", "begin a {", "scalar b 0 1 1", "end a", "end "}},
		{`{"list":[{"c":true},[{"c":1}],null]}`,
			[]string{"begin  {", "begin list [", "begin item {", "scalar c t true 4", "end item",
				"begin item [", "end item", "scalar item n null 4", "end list", "end "}},
		{`{"x":{"a":{"b":1}},"y":[{"a":{"b":1}}],"z":"{\"a\":{\"b\":1}}"}`,
			[]string{"begin  {", "end "}},
		{`{"` + strings.Repeat("a", 300) + `":1}`, []string{"begin  {", "end "}},
	} {
		got, ok := record(root, []byte(c.doc))
		if !ok || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n%q, want\n%q", c.doc, got, c.want)
		}
	}
}

// With Many documents follow each other, with line ends between them or without.
func TestScannerReadsManyDocuments(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		docs := rapid.SliceOfN(rapid.SampledFrom([]string{
			`{"a":1}`, `[]`, `[{"b":"x"},2]`, `"text"`, `{}`,
		}), 1, 5).Draw(r, "documents")
		between := rapid.SampledFrom([]string{"\n", "\r\n", " ", ""}).Draw(r, "between")
		var want []string
		for _, doc := range docs {
			notes, _ := record(everything(), []byte(doc))
			want = append(want, notes...)
		}
		var got recorder
		s := jsonscan.New(everything(), &got)
		s.Many()
		for _, p := range draw(r, []byte(strings.Join(docs, between)+between)) {
			s.Scan(p)
		}
		if !s.Idle() || s.Broken() || !reflect.DeepEqual(got.notes, want) {
			r.Fatalf("%q, want %q", got.notes, want)
		}
		if s.Scan([]byte(`{"a`)); s.Idle() {
			r.Fatal("idle inside a document")
		}
	})
}

// The pieces of a string add up to it, however it is spelt and cut.
func TestScannerTellsPieces(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.String().Draw(r, "text")
		doc := gatetest.Must(json.Marshal(map[string]string{text: text}))(r)
		var got []byte
		s := jsonscan.New(everything(), new(recorder))
		s.Pieces(func(_ *jsonscan.Node, p []byte) { got = append(got, p...) })
		for _, p := range draw(r, doc) {
			s.Scan(p)
		}
		if string(got) != strings.ToValidUTF8(text, string(utf8.RuneError)) && utf8.ValidString(text) {
			r.Fatalf("%q, want %q", got, text)
		}
	})
}

func TestScannerBoundsDepth(t *testing.T) {
	for n, want := range map[int]bool{jsonscan.MaxDepth: true, jsonscan.MaxDepth + 1: false} {
		doc := []byte(strings.Repeat("[", n) + strings.Repeat("]", n))
		_, ok := record(everything(), doc)
		gatetest.Equal(t, ok, want, "depth %d: accepted", n)
	}
}

// draw cuts b into pieces of random lengths.
func draw(r *rapid.T, b []byte) [][]byte {
	var pieces [][]byte
	for len(b) > 0 {
		most := rapid.SampledFrom([]int{3, 60, 5000}).Draw(r, "most")
		n := rapid.IntRange(1, min(len(b), most)).Draw(r, "length")
		pieces = append(pieces, b[:n])
		b = b[n:]
	}
	return pieces
}
