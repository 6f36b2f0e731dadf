package promgate_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/series"
)

// promtool returns the path of Prometheus's own tool.
func promtool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("HEADGATE_TEST_REDIS") == "require" {
			t.Fatal(err)
		}
		t.Skip("promtool is not on PATH")
	}
	return path
}

func check(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(promtool(t), args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// Every alert fires for a job in trouble, and none for a healthy one. The page for operators says what
// to do.
func TestRules(t *testing.T) {
	check(t, "check", "rules", "--lint-fatal", "rules.yml")
	check(t, "test", "rules", "rules_test.yml")
	tested, rules := read(t, "rules_test.yml"), read(t, "rules.yml")
	page := read(t, "../../docs/reference/alerts.md")
	for _, m := range regexp.MustCompile(`(?m)alert: (\w+)$`).FindAllStringSubmatch(rules, -1) {
		if !strings.Contains(tested, m[1]) {
			t.Errorf("rules_test.yml does not test %s", m[1])
		}
		if !strings.Contains(page, "| `"+m[1]+"`") {
			t.Errorf("docs/reference/alerts.md does not say what to do when %s fires", m[1])
		}
	}
	for _, fault := range foreign(rules) {
		t.Errorf("rules.yml: %s", fault)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text := gatetest.Must(os.ReadFile(name))(t)
	return string(text)
}

// metric is the name of a metric and the labels that are selected.
var (
	metric  = regexp.MustCompile(`\bheadgate_[a-z_]+`)
	grouped = regexp.MustCompile(`by \(([a-z_, ]+)\)`)
	labels  = regexp.MustCompile(`([a-z_]+)(?:=~|!=|!~|=)"`)
)

// foreign returns what queries name and no series has.
func foreign(queries string) (faults []string) {
	names, known := make(map[string]bool), map[string]bool{"job": true, "le": true, "severity": true}
	for _, s := range series.All() {
		names[s.Prometheus()] = true
		if s.Kind == series.Histogram {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				names[s.Prometheus()+part] = true
			}
		}
		for _, l := range s.Labels {
			known[l] = true
		}
	}
	for _, name := range metric.FindAllString(queries, -1) {
		if !names[name] {
			faults = append(faults, "there is no series "+name)
		}
	}
	for _, m := range slices.Concat(grouped.FindAllStringSubmatch(queries, -1), labels.FindAllStringSubmatch(queries, -1)) {
		for l := range strings.SplitSeq(m[1], ", ") {
			if !known[l] {
				faults = append(faults, "there is no label "+l)
			}
		}
	}
	return faults
}

// dashboard is what the test reads of Grafana's file.
type dashboard struct {
	Title      string
	UID        string
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Annotations struct{ List []struct{ Expr string } }
	Panels      []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr, LegendFormat string }
	}
}

func (d *dashboard) queries() (all []string) {
	for _, a := range d.Annotations.List {
		all = append(all, a.Expr)
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}

// Prometheus parses every query of the dashboard, and each names a series and variables that exist.
func TestDashboardQueries(t *testing.T) {
	var d dashboard
	gatetest.NoError(t, json.Unmarshal([]byte(read(t, "dashboard.json")), &d))
	variables := make(map[string]bool)
	for _, v := range d.Templating.List {
		variables["$"+v.Name] = true
		if v.Type == "query" {
			for _, fault := range foreign(v.Definition) {
				t.Errorf("variable %s: %s", v.Name, fault)
			}
		}
	}
	queries := d.queries()
	for i, query := range queries {
		query = strings.ReplaceAll(query, "$__rate_interval", "5m")
		for _, v := range regexp.MustCompile(`\$\w+`).FindAllString(query, -1) {
			if !variables[v] {
				t.Errorf("%s: there is no variable %s", query, v)
			}
		}
		queries[i] = query
	}
	if len(queries) < 30 {
		t.Errorf("the dashboard has %d queries", len(queries))
	}
	parse(t, queries)
}

// parse checks that Prometheus parses queries and that each names series and labels that exist.
func parse(t *testing.T, queries []string) {
	t.Helper()
	var rules strings.Builder
	rules.WriteString("groups:\n- name: queries\n  rules:\n")
	for i, query := range queries {
		for _, fault := range foreign(query) {
			t.Errorf("%s: %s", query, fault)
		}
		fmt.Fprintf(&rules, "  - record: query:%d\n    expr: %q\n", i, query)
	}
	file := filepath.Join(t.TempDir(), "queries.yml")
	gatetest.NoError(t, os.WriteFile(file, []byte(rules.String()), 0o600))
	check(t, "check", "rules", file)
}

// Prometheus parses the queries of the page too.
func TestQueriesOfPage(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "../../docs/observability.md"), "### Questions")
	section, _, _ = strings.Cut(section, "\n## ")
	var queries []string
	for _, m := range regexp.MustCompile("(?m)\\| `([^`]+)` \\|$").FindAllStringSubmatch(section, -1) {
		queries = append(queries, m[1])
	}
	if len(queries) < 5 {
		t.Errorf("the page has %d queries", len(queries))
	}
	parse(t, queries)
}

// Every series stands on the dashboard or in the alerts, and no two panels overlap.
func TestDashboardShowsEverySeries(t *testing.T) {
	text := read(t, "dashboard.json") + read(t, "rules.yml")
	shown := make(map[string]bool)
	for _, name := range metric.FindAllString(text, -1) {
		for _, part := range []string{"", "_bucket", "_sum", "_count"} {
			shown[strings.TrimSuffix(name, part)] = true
		}
	}
	for _, s := range series.All() {
		if !shown[s.Prometheus()] {
			t.Errorf("nothing shows %s; it shows %v", s.Prometheus(), slices.Sorted(maps.Keys(shown)))
		}
	}
	var d dashboard
	gatetest.NoError(t, json.Unmarshal([]byte(read(t, "dashboard.json")), &d))
	taken := make(map[[2]int]string)
	ids := make(map[int]bool)
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("panel %q has the id of another", p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q overlaps %q", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
