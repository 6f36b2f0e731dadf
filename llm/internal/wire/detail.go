package wire

import (
	"bytes"
	"cmp"

	"github.com/headgate/headgate/llm/internal/jsonscan"
)

// entry is an object that has numbers of its own. of says what it belongs to:
//
//   - iteration: one of Anthropic's iterations
//   - image: what a tool that draws has used
//   - in, out: tokens of one modality
//   - cache: tokens that were stored for one lifetime
//   - read: cached tokens of one modality
//   - item: one item of the response
//   - annotation: of a chat's answer
type entry struct {
	of        string
	kind      entryKind
	unnamed   string // its kind, if that is unknown
	other     bool   // its action is no search
	n         int64
	model     string
	container string
	counts    counts
}

// entryKind is what the kind of an entry means here.
type entryKind uint8

const (
	otherEntry entryKind = iota
	compactionEntry
	advisorEntry
	audioEntry
	imageEntry
	longEntry
	searchEntry
	fileEntry
	codeEntry
	drawEntry
	citationEntry
	freeEntry
)

// entryKinds has the kinds by their names. The client runs the tools that are free, except that
// Anthropic's and OpenAI's connectors cost tokens alone, and that a usage counts the searches of X.
var entryKinds = map[string]entryKind{
	"compaction": compactionEntry, "advisor_message": advisorEntry, "AUDIO": audioEntry, "IMAGE": imageEntry,
	"1h": longEntry, "web_search_call": searchEntry, "file_search_call": fileEntry,
	"code_interpreter_call": codeEntry, "shell_call": codeEntry, "image_generation_call": drawEntry,
	"url_citation":  citationEntry,
	"function_call": freeEntry, "custom_tool_call": freeEntry, "computer_call": freeEntry,
	"local_shell_call": freeEntry, "apply_patch_call": freeEntry, "tool_search_call": freeEntry,
	"mcp_call": freeEntry, "x_search_call": freeEntry,
}

// text reads a string of the entry.
func (e *entry) text(text []byte, role jsonscan.Role) {
	switch role {
	case tellEntryKind:
		e.kind = entryKinds[string(text)] // without an allocation
		if e.kind == otherEntry && e.of == "item" && bytes.HasSuffix(text, []byte("_call")) {
			e.unnamed = "item " + string(text)
		}
	case tellEntryModel:
		e.model = string(text)
	case tellAction:
		e.other = string(text) != "search"
	case tellContainer:
		e.container = string(text)
	}
}

// endEntry adds the entry to what the event has said.
func (r *reader) endEntry() {
	n, e, c := &r.entry, &r.event, &r.event.counts
	switch n.of {
	case "iteration": // the usage includes those of other kinds, or they are not billed
		used := n.counts.usage(r.format.table.Beside, false)
		switch n.kind {
		case compactionEntry:
			e.extra = e.extra.plus(used)
		case advisorEntry:
			e.other(n.model, used)
		}
	case "image":
		r.bill.drawn = cmp.Or(n.counts.usage(false, true), r.bill.drawn)
	case "in":
		n.modality(c, audioInCount, imageInCount)
	case "read":
		n.modality(c, audioReadCount, imageReadCount)
	case "out":
		n.modality(c, audioOutCount, imageOutCount)
	case "cache":
		if n.kind == longEntry {
			c.set(longCount, c.tokens[longCount]+n.n)
		}
	case "item":
		n.item(&e.items)
		if n.unnamed != "" {
			r.unnamed(n.unnamed, 1)
		}
	case "annotation":
		r.bill.cited = r.bill.cited || n.kind == citationEntry
	}
}

func (e *entry) modality(c *counts, audio, image count) {
	switch e.kind {
	case audioEntry:
		c.set(audio, e.n)
	case imageEntry:
		c.set(image, e.n)
	}
}

func (e *entry) item(items *items) {
	switch e.kind {
	case searchEntry: // the first servers stated no action
		if !e.other {
			items.searches++
		}
	case fileEntry:
		items.files++
	case drawEntry:
		items.images++
	case codeEntry:
		items.container(e.container)
	}
}
