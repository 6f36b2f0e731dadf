package plans_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/plans"
)

func schemaFile(t *testing.T) []byte {
	t.Helper()
	return gatetest.Must(os.ReadFile("plans.schema.json"))(t)
}

// compiledSchema returns the schema, which is a valid one.
func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	doc := gatetest.Must(jsonschema.UnmarshalJSON(bytes.NewReader(schemaFile(t))))(t)
	gatetest.NoError(t, c.AddResource("plans.schema.json", doc))
	return gatetest.Must(c.Compile("plans.schema.json"))(t)
}

// valid returns the error of a text by the schema.
func valid(s *jsonschema.Schema, text string) error {
	converted, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(converted)))
	if err != nil {
		return err
	}
	return s.Validate(doc)
}

// files are all plans of the documentation and of the examples, by where they stand.
func files(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"everything": everything, "levels": levels, "subscribed": subscribed}
	pages := append(gatetest.Must(filepath.Glob("../docs/*.md"))(t), "../README.md")
	for _, page := range pages {
		text := string(gatetest.Must(os.ReadFile(page))(t))
		for i, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(block[1], "default:") || strings.Contains(block[1], "\ndefault:") {
				all[page+" "+string(rune('a'+i))] = block[1]
			}
		}
	}
	for _, path := range gatetest.Must(filepath.Glob("../_examples/*/plans.yaml"))(t) {
		all[path] = string(gatetest.Must(os.ReadFile(path))(t))
	}
	return all
}

// Every file that the documentation and the examples have is valid by the parser and by the schema.
func TestSchemaOfExamples(t *testing.T) {
	t.Parallel()
	s := compiledSchema(t)
	pages := 0
	for name, text := range files(t) {
		if _, err := plans.ParseSet([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := valid(s, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if strings.HasPrefix(name, "../") {
			pages++
		}
	}
	if pages < 5 {
		t.Errorf("%d files of the documentation", pages)
	}
}

// The schema has the fields of the parser, no more and no fewer.
func TestSchemaHasTheFieldsOfTheParser(t *testing.T) {
	t.Parallel()
	type object struct {
		Properties map[string]json.RawMessage
		AnyOf      []object
		Items      *object
	}
	var root struct {
		object
		Defs map[string]object `json:"$defs"`
	}
	gatetest.NoError(t, json.Unmarshal(schemaFile(t), &root))
	var log object
	gatetest.NoError(t, json.Unmarshal(root.Defs["sliding_log"].Properties["sliding_log"], &log))
	limit := func(fields string) string { return "{default: a, plans: {a: {limits: {x: {" + fields + "}}}}}" }
	for name, c := range map[string]struct {
		text string // with the field more
		has  object
	}{
		"file":           {"{more: 1}", root.object},
		"plan":           {"{default: a, plans: {a: {more: 1}}}", root.Defs["plan"]},
		"cap":            {"{default: a, plans: {a: {caps: {x: {more: 1}}}}}", root.Defs["cap"].AnyOf[1]},
		"rate":           {limit("rate: 1, per: 1m, more: 1"), root.Defs["rate"]},
		"leak":           {limit("leak: 1, per: 1m, more: 1"), root.Defs["leak"]},
		"fixed_window":   {limit("limit: 1, fixed_window: 1m, more: 1"), root.Defs["fixed_window"]},
		"sliding_window": {limit("limit: 1, sliding_window: 1m, more: 1"), root.Defs["sliding_window"]},
		"sliding_log":    {limit("limit: 1, sliding_log: 1m, more: 1"), root.Defs["sliding_log"]},
		"window":         {limit("sliding_log: [{limit: 1, window: 1m, more: 1}]"), *log.AnyOf[1].Items},
		"calendar":       {limit("limit: 1, calendar: day, in: UTC, more: 1"), root.Defs["calendar"]},
		"then":           {limit("limit: 1, calendar: day, in: UTC, then: {overage: 1, more: 1}"), root.Defs["then"]},
	} {
		_, err := plans.ParseSet([]byte(c.text))
		if err == nil {
			t.Errorf("%s: the parser takes more", name)
			continue
		}
		listed := regexp.MustCompile(`more is no field.*: there are (.*)`).FindStringSubmatch(err.Error())
		if listed == nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		parsed := strings.FieldsFunc(strings.ReplaceAll(listed[1], " and ", ", "), func(r rune) bool { return r == ',' || r == ' ' })
		slices.Sort(parsed)
		var has []string
		for field := range c.has.Properties {
			has = append(has, field)
		}
		slices.Sort(has)
		if !slices.Equal(parsed, has) {
			t.Errorf("%s: the parser has %v, and the schema %v", name, parsed, has)
		}
	}
	var kinds []string
	_, err := plans.ParseSet([]byte(limit("x: 1")))
	for _, kind := range []string{"rate", "leak", "fixed_window", "sliding_window", "sliding_log", "calendar"} {
		if strings.Contains(err.Error(), kind) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) != len(root.Defs["limit"].AnyOf)-1 {
		t.Errorf("the schema has %d kinds of limits, and the parser %v", len(root.Defs["limit"].AnyOf)-1, err)
	}
}

// What the parser takes, the schema takes: an editor complains of no good file.
func TestSchemaTakesWhatTheParserTakes(t *testing.T) {
	t.Parallel()
	s := compiledSchema(t)
	value := regexp.MustCompile(`: ([^{}\[\], \n]+)`)
	values := []string{
		"1", "0", "-1", "5", "1000", "1_000", "9007199254740993", "1s", "1.5h", ".5s", "1d", "36d12h30m", "500ms", "true", "false", "deny",
		"unlimited", "month", "day", "UTC", "Europe/Berlin", "2026-01-31", "2026-01-31T09:00:00+01:00", "subscription", "free", `"1m"`,
	}
	all := files(t)
	names := slices.Sorted(maps.Keys(all))
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		text := all[rapid.SampledFrom(names).Draw(t, "file")]
		places := value.FindAllStringSubmatchIndex(text, -1)
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			at := rapid.SampledFrom(places).Draw(t, "place")
			if at[3] <= len(text) {
				text = text[:at[2]] + rapid.SampledFrom(values).Draw(t, "value") + text[at[3]:]
				places = value.FindAllStringSubmatchIndex(text, -1)
			}
		}
		if _, err := plans.ParseSet([]byte(text)); err != nil {
			return
		}
		taken++
		if err := valid(s, text); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	})
	if taken == 0 {
		t.Error("the parser takes nothing")
	}
}

// What the schema can know, it refuses as the parser does.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	s := compiledSchema(t)
	limit := func(text string) string { return "default: a\nplans: {a: {limits: {x: " + text + "}}}" }
	for _, text := range []string{
		"plans: {a: {}}", "default: a", "default: a\nplans: {}", "default: a\nplans: {a: {}}\nmore: 1", "default: a\nplans: {a b: {}}",
		"default: a\nplans: {a: {caps: {s: 0}}}", "default: a\nplans: {a: {caps: {s: {}}}}", "default: a\nplans: {a: {caps: {s: {share: 0}}}}",
		"default: a\nplans: {a: {limits: {x: deny}}}\nroutes: {x: []}", "default: a\nplans: {a: {limits: {x: deny}}}\nroutes: {x: [search]}",
		limit("none"), limit("5"), limit("{burst: 5}"), limit("{rate: 1, per: minute}"), limit("{rate: 1.5, per: 1m}"), limit("{leak: 0, per: 1s}"),
		limit("{rate: 1, per: 60}"), limit("{limit: 1, calendar: fortnight, in: UTC}"), limit("{limit: 1, calendar: month}"),
		limit("{limit: 1, calendar: month, in: UTC, anchor: January}"), limit("{limit: 1, calendar: month, in: UTC, then: {}}"),
		limit("{limit: 1, sliding_window: 1m, buckets: 2000}"), limit("{limit: 1, fixed_window: 1m, from_first: 1}"),
		limit("{limit: 1, calendar: month, in: UTC, then: {overage: 0}}"), limit("{limit: 1, sliding_window: 1m, then: {overage: 1}}"),
	} {
		gatetest.Fails(t, gatetest.Err(plans.ParseSet([]byte(text))), "the parser takes %s", text)
		if valid(s, text) == nil {
			t.Errorf("the schema takes %s", text)
		}
	}
}
