package admin

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
)

//go:embed page
var files embed.FS

// parse parses the templates.
func (a *Admin) parse() (*template.Template, error) {
	return template.New("").Funcs(template.FuncMap{
		"name":    a.name,
		"link":    link,
		"key":     inspect.FormatKey,
		"number":  inspect.Number,
		"wait":    inspect.Wait,
		"why":     func(r inspect.Reason) string { return r.Text(a.name) },
		"time":    stamp,
		"ago":     ago,
		"bars":    bars,
		"percent": percent,
		"hold":    hold,
	}).ParseFS(files, "page/*.html")
}

// frame is what every page has.
type frame struct {
	Title    string
	Operator string
	Writes   bool
	Text     string // of what the operator looked for
	Body     any
}

// render writes a page.
func (a *Admin) render(
	w http.ResponseWriter, r *http.Request, status int, name, title string, body any,
) {
	text := r.URL.Query().Get("key")
	f := frame{Title: title, Operator: operatorOf(r.Context()), Writes: a.mayWrite(r), Text: text, Body: body}
	var page bytes.Buffer
	if err := a.templates.ExecuteTemplate(&page, name+".html", f); err != nil {
		http.Error(w, "The page cannot be written.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes()) // the browser may have left
}

// holderView is a holder on the page of a key.
type holderView struct {
	View   subjectView
	Slots  slotsRow
	Holder inspect.Holder
}

func hold(v subjectView, s slotsRow, h inspect.Holder) holderView { return holderView{v, s, h} }

// link returns the address of a key's page.
func link(k core.Key) string {
	return "subject?" + url.Values{"key": {inspect.FormatKey(k)}}.Encode()
}

// clock is a time on a page. The script of the page shows it in the zone of the browser.
type clock struct{ Machine, Human string }

// stamp returns a time on a page.
func stamp(t time.Time) clock {
	return clock{t.UTC().Format(time.RFC3339), inspect.Clock(t)}
}

// ago returns for how long something is so.
func ago(t time.Time) string { return inspect.Wait(max(0, time.Since(t).Truncate(time.Second))) }

// bars returns the outline of a minute of numbers: a bar a second, 60 wide and 20 high.
func bars(all [history]int64) string {
	const height = 20
	most := max(1, slices.Max(all[:]))
	var path strings.Builder
	fmt.Fprintf(&path, "M0 %d", height)
	for i, n := range all {
		top := height - (n*height+most-1)/most
		fmt.Fprintf(&path, "V%dH%d", top, i+1)
	}
	fmt.Fprintf(&path, "V%dZ", height)
	return path.String()
}

// percent returns a part of a whole, between 0 and 100.
func percent(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return min(100, max(0, int64(float64(part)/float64(whole)*100)))
}
