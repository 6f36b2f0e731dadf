// Package wire reads and writes the wire formats of language models. It reads a request as a
// Request and a response as a Response, which are the same for every format, and writes errors as
// the server of a format does. A format is a Table.
package wire

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/headgate/headgate/llm/internal/jsonscan"
)

// Table describes a format by the paths of the values that matter.
//
// Request, Response and Headers map a meaning to paths, separated by spaces. A path names members,
// as in usage.prompt_tokens. [] stands for the elements of an array, {a,b} for either, and ** at
// the end for everything below. The meanings are the keys of asked and told.
type Table struct {
	Name   string
	Routes []Route
	Except []string // paths of routes that are none of the format's
	// Request has the paths of a body, and Response those of a document, of each event of a stream,
	// and of each element of an array. Headers has the names of headers of the response.
	Request, Response, Headers map[string]string
	// Events maps the type of an event to what it means: end, fail, error, silent or item.
	Events map[string]string

	Streams   bool   // a request that does not say whether it asks for a stream asks for one
	Lines     bool   // a stream is one document a line
	Beside    bool   // cached tokens are not part of the input
	OneSided  bool   // a usage need not state both input and output
	Unit      string // the piece by which a response may be billed that states nothing else
	ImageOut  bool   // output without details is images
	NoOutput  bool   // a response has no tokens of output
	AsksUsage bool   // the server states the usage of a stream if stream_options asks for it

	FileTokens int64 // for each file of a request, as a first guess
	Errors     Errors
}

// Route is the end of a path. A * stands for the model: any number of elements of the path, or a part
// of one.
type Route struct {
	Path   string
	Stream bool // the response is a stream, whatever the body says
}

// Format is the wire format of a request and of its response: a Table that is ready for use. It
// never changes.
type Format struct {
	base     *Format // if At has made it
	table    Table
	request  *node
	response *node
	headers  map[string]meaning // by the canonical name of the header
	events   map[string]eventKind
}

// formatOf returns the format of a table of this package. It panics at start-up if the table has a
// fault.
func formatOf(t Table) *Format {
	if t.Request["model"] != "" { // OpenRouter, Anthropic and LiteLLM take others in any format
		t.Request = with(t.Request, map[string]string{
			"models":           "models models[] fallbacks fallbacks[] fallbacks[].model",
			"other_max_output": "fallbacks[].max_tokens",
		})
	}
	f := &Format{
		table: t, request: compile(t.Request, asked), response: compile(t.Response, told),
		headers: make(map[string]meaning), events: make(map[string]eventKind),
	}
	f.request.Role, f.request.Watch = askBody, true
	f.response.Each = &node{Role: tellDocument, Kids: f.response.Kids}
	for name, headers := range t.Headers {
		for h := range strings.FieldsSeq(headers) {
			f.headers[http.CanonicalHeaderKey(h)] = meaningOf(name, told)
		}
	}
	for event, kind := range t.Events {
		f.events[event] = eventKinds[kind]
	}
	return f
}

// At returns the format for the requests of another path.
func (f *Format) At(r Route) *Format {
	at := *f
	at.base = f.Base()
	at.table.Routes, at.table.Except = []Route{r}, nil
	return &at
}

// Base returns the format itself, given one that At has made.
func (f *Format) Base() *Format { return cmp.Or(f.base, f) }

// String returns a name such as openai-chat.
func (f *Format) String() string { return f.table.Name }

// Errors returns how the server of the format reports errors.
func (f *Format) Errors() Errors { return f.table.Errors }

// Unit returns the piece by which responses may be billed that state nothing else, or "".
func (f *Format) Unit() string { return f.table.Unit }

// HasOutput reports whether responses have tokens of output.
func (f *Format) HasOutput() bool { return !f.table.NoOutput }

// match returns the route of a path, and where the path names the model, if it does.
func (f *Format) match(path string) (r *Route, from, to int) {
	for _, other := range f.table.Except {
		if _, _, ok := (&Route{Path: other}).match(path); ok {
			return nil, 0, 0
		}
	}
	for i := range f.table.Routes {
		r := &f.table.Routes[i]
		if from, to, ok := r.match(path); ok {
			return r, from, to
		}
	}
	return nil, 0, 0
}

// match returns where a path names the model of a route, if it is one of the route.
func (r *Route) match(path string) (from, to int, ok bool) {
	before, after, named := strings.Cut(r.Path, "*")
	if !named {
		return 0, 0, endsWith(path, r.Path)
	}
	if !endsWith(path, after) {
		return 0, 0, false
	}
	to = len(path) - len(after)
	from = strings.LastIndex(strings.ToLower(path[:to]), strings.ToLower(before)) + len(before)
	// Docker's runner has the model in the body, and /engines/llama.cpp/v1 in the path.
	return from, to, from >= len(before) && from < to && !endsWith("/"+path[from:to], "/v1")
}

// endsWith ignores case, as some servers do.
func endsWith(path, end string) bool {
	return len(path) >= len(end) && strings.EqualFold(path[len(path)-len(end):], end)
}

// SetModel returns a URL with another model, or false if its path names none.
func (f *Format) SetModel(u *url.URL, model string) (*url.URL, bool) {
	path, r, from, to := f.route(spellings(u))
	if r == nil || from == to {
		return u, false
	}
	path = path[:from] + url.PathEscape(model) + path[to:]
	if strings.HasSuffix(u.Path, "/") {
		path += "/"
	}
	changed := *u
	changed.Path, _ = url.PathUnescape(path) // which is escaped
	changed.RawPath = path
	return &changed, true
}

// FormatOf derives the format of a POST from the end of its path. It asks the formats in order. It
// ignores case, empty elements and escapes, and follows dots, as some servers do: a spelling that
// one of them serves must not pass unread. It returns nil for any other request.
func FormatOf(r *http.Request, formats []*Format) *Format {
	if r.Method != http.MethodPost || r.URL == nil {
		return nil
	}
	paths := spellings(r.URL)
	for _, f := range formats {
		if _, route, _, _ := f.route(paths); route != nil {
			return f
		}
	}
	return nil
}

// spellings returns the path of a URL as it is, and with its slashes unescaped, as many servers
// read it.
func spellings(u *url.URL) [2]string { return [...]string{pathOf(u), pathOf(&url.URL{Path: u.Path})} }

// route returns the one of two spellings that has a route, and what match does.
func (f *Format) route(paths [2]string) (path string, r *Route, from, to int) {
	for _, path = range paths {
		if r, from, to = f.match(path); r != nil {
			break
		}
	}
	return path, r, from, to
}

// pathOf returns the one spelling of a path. A slash that the client has escaped stays escaped,
// since the name of a model may have one.
func pathOf(u *url.URL) string {
	var elements []string
	for escaped := range strings.SplitSeq(u.EscapedPath(), "/") {
		escaped, _, _ = strings.Cut(escaped, ";") // Java's servers read parameters behind it
		element, _ := url.PathUnescape(escaped)   // EscapedPath is valid
		elements = append(elements, url.PathEscape(strings.TrimSpace(element)))
	}
	return path.Clean("/" + strings.Join(elements, "/"))
}

// with returns a table of paths with further ones, which replace those of the same meaning.
func with(base, more map[string]string) map[string]string {
	all := maps.Clone(base)
	maps.Copy(all, more)
	return all
}

// also returns a table of paths with further ones of the same meanings.
func also(base, more map[string]string) map[string]string {
	all := maps.Clone(base)
	for meaning, paths := range more {
		all[meaning] += " " + paths
	}
	return all
}

// node is a place in a document. The tables leave out the name of the package.
type node = jsonscan.Node
