// Package wire reads and writes the wire formats of language models. It reads a request as a
// Request and a response as a Response, which are the same for every format, and writes errors as
// the server of a format does. A format is a Table.
package wire

import (
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
	Routes []Route // whose Format is this one
	// Request has the paths of a body, and Response those of a document, of each event of a stream,
	// and of each element of an array. Headers has the names of headers of the response.
	Request, Response, Headers map[string]string
	// Events maps the type of an event to what it means.
	Events map[string]eventKind

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
	Format *Format // nil for paths that only look like those of a format
	Stream bool    // the response is a stream, whatever the body says
}

// Format is the wire format of a request and of its response: a Table that is ready for use. It
// never changes.
type Format struct {
	table    Table
	request  *node
	response *node
	headers  map[string]meaning // by the canonical name of the header
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
		headers: make(map[string]meaning),
	}
	f.request.Role, f.request.Watch = askBody, true
	f.response.Each = &node{Role: tellDocument, Kids: f.response.Kids}
	for name, headers := range t.Headers {
		for h := range strings.FieldsSeq(headers) {
			f.headers[http.CanonicalHeaderKey(h)] = meaningOf(name, told)
		}
	}
	return f
}

// String returns a name such as openai-chat.
func (f *Format) String() string { return f.table.Name }

// Errors returns how the server of the format reports errors.
func (f *Format) Errors() Errors { return f.table.Errors }

// Unit returns the piece by which responses may be billed that state nothing else, or "".
func (f *Format) Unit() string { return f.table.Unit }

// HasOutput reports whether responses have tokens of output.
func (f *Format) HasOutput() bool { return !f.table.NoOutput }

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

// Target is what the path of a request asks for.
type Target struct {
	Format   *Format
	streams  bool // the response is a stream
	path     string
	from, to int // path[from:to] names the model, unless it is empty
}

// Find derives the target of a POST from the end of its path. It asks the routes in order. It ignores
// case, empty elements and escapes, and follows dots, as some servers do: a spelling that one of them
// serves must not pass unread. It reports false for any other request.
func Find(r *http.Request, routes []Route) (t Target, ok bool) {
	if r.Method != http.MethodPost || r.URL == nil {
		return Target{}, false
	}
	// Many servers read the path with its slashes unescaped.
	for _, path := range [...]string{pathOf(r.URL), pathOf(&url.URL{Path: r.URL.Path})} {
		for _, route := range routes {
			if from, to, ok := route.match(path); ok {
				return Target{route.Format, route.Stream, path, from, to}, route.Format != nil
			}
		}
	}
	return Target{}, false
}

// model returns the model that the path names, or "".
func (t *Target) model() string {
	name, _ := url.PathUnescape(t.path[t.from:t.to]) // which is escaped
	return name
}

// SetModel returns the URL of a target whose path names a model, with another model.
func (t *Target) SetModel(u *url.URL, model string) *url.URL {
	path := t.path[:t.from] + url.PathEscape(model) + t.path[t.to:]
	if strings.HasSuffix(u.Path, "/") {
		path += "/"
	}
	changed := *u
	changed.Path, _ = url.PathUnescape(path) // which is escaped
	changed.RawPath = path
	return &changed
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
