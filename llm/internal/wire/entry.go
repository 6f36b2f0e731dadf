package wire

import (
	"bytes"

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

// kindOfEntry allocates nothing, since some servers state modalities in each event.
func kindOfEntry(text []byte) entryKind {
	switch string(text) {
	case "compaction":
		return compactionEntry
	case "advisor_message":
		return advisorEntry
	case "AUDIO":
		return audioEntry
	case "IMAGE":
		return imageEntry
	case "1h":
		return longEntry
	case "web_search_call":
		return searchEntry
	case "file_search_call":
		return fileEntry
	case "code_interpreter_call", "shell_call":
		return codeEntry
	case "image_generation_call":
		return drawEntry
	case "url_citation":
		return citationEntry
	case "function_call", "custom_tool_call", "computer_call", "local_shell_call", "apply_patch_call",
		"tool_search_call",          // which the client runs
		"mcp_call", "x_search_call": // the first is free, and the usage counts the second
		return freeEntry
	}
	return otherEntry
}

// text reads a string of the entry.
func (e *entry) text(text []byte, role jsonscan.Role) {
	switch role {
	case tellEntryKind:
		e.kind = kindOfEntry(text)
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
	n, b, c := &r.entry, &r.event.bill, &r.event.counts
	switch n.of {
	case "iteration": // the usage includes those of other kinds, or they are not billed
		used := n.counts.usage(r.format.table.Beside, false)
		switch n.kind {
		case compactionEntry:
			b.extra = b.extra.plus(used)
		case advisorEntry:
			b.other(n.model, used)
		}
	case "image":
		b.drawn = n.counts.usage(false, true)
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
		n.item(&b.items)
		if n.unnamed != "" {
			r.unnamed(n.unnamed, 1)
		}
	case "annotation":
		b.cited = b.cited || n.kind == citationEntry
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
