package wire

import (
	"bytes"
	"cmp"

	"github.com/headgate/headgate/llm/internal/jsonscan"
)

// detail is an object that has numbers of its own. of says what it belongs to:
//
//   - iteration: one of Anthropic's iterations
//   - image: what a tool that draws has used
//   - in, out: tokens of one modality
//   - cache: tokens that were stored for one lifetime
//   - read: cached tokens of one modality
//   - item: one item of the response
//   - annotation: of a chat's answer
type detail struct {
	of        string
	kind      detailKind
	unnamed   string // its kind, if that is unknown
	other     bool   // its action is no search
	n         int64
	model     string
	container string
	counts    counts
}

// detailKind is what the kind of a detail means here.
type detailKind uint8

const (
	otherDetail detailKind = iota
	compactionDetail
	advisorDetail
	audioDetail
	imageDetail
	longDetail
	searchDetail
	fileDetail
	codeDetail
	drawDetail
	citationDetail
	freeDetail
)

// detailKinds has the kinds by their names. The client runs the tools that are free, except that
// Anthropic's and OpenAI's connectors cost tokens alone, and that a usage counts the searches of X.
var detailKinds = map[string]detailKind{
	"compaction": compactionDetail, "advisor_message": advisorDetail, "AUDIO": audioDetail, "IMAGE": imageDetail,
	"1h": longDetail, "web_search_call": searchDetail, "file_search_call": fileDetail,
	"code_interpreter_call": codeDetail, "shell_call": codeDetail, "image_generation_call": drawDetail,
	"url_citation":  citationDetail,
	"function_call": freeDetail, "custom_tool_call": freeDetail, "computer_call": freeDetail,
	"local_shell_call": freeDetail, "apply_patch_call": freeDetail, "tool_search_call": freeDetail,
	"mcp_call": freeDetail, "x_search_call": freeDetail,
}

// text reads a string of the detail.
func (e *detail) text(text []byte, role jsonscan.Role) {
	switch role {
	case tellDetailKind:
		e.kind = detailKinds[string(text)] // without an allocation
		if e.kind == otherDetail && e.of == "item" && bytes.HasSuffix(text, []byte("_call")) {
			e.unnamed = "item " + string(text)
		}
	case tellDetailModel:
		e.model = string(text)
	case tellAction:
		e.other = string(text) != "search"
	case tellContainer:
		e.container = string(text)
	}
}

// endDetail adds the detail to what the event has said.
func (r *reader) endDetail() {
	n, e, c := &r.detail, &r.event, &r.event.counts
	switch n.of {
	case "iteration": // the usage includes those of other kinds, or they are not billed
		used := n.counts.usage(r.format.table.Beside, false)
		switch n.kind {
		case compactionDetail:
			e.extra = e.extra.plus(used)
		case advisorDetail:
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
		if n.kind == longDetail {
			c.set(longCount, c.tokens[longCount]+n.n)
		}
	case "item":
		n.item(&e.items)
		if n.unnamed != "" {
			r.unnamed(n.unnamed, 1)
		}
	case "annotation":
		r.bill.cited = r.bill.cited || n.kind == citationDetail
	}
}

func (e *detail) modality(c *counts, audio, image count) {
	switch e.kind {
	case audioDetail:
		c.set(audio, e.n)
	case imageDetail:
		c.set(image, e.n)
	}
}

func (e *detail) item(items *items) {
	switch e.kind {
	case searchDetail: // the first servers stated no action
		if !e.other {
			items.searches++
		}
	case fileDetail:
		items.files++
	case drawDetail:
		items.images++
	case codeDetail:
		items.container(e.container)
	}
}
