package house_test

import (
	"go/constant"
	"go/types"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/eventtest"
	"github.com/headgate/headgate/internal/series"
)

// eventtest has an event of every public type that has an EventName, and of every operation and
// change that such an event tells, so that the tests of what observes events miss none.
func TestEventtestHasEveryEvent(t *testing.T) {
	told := make(map[string][]int64) // what the events of a type tell
	for _, e := range eventtest.All(t) {
		v := reflect.ValueOf(e).Elem()
		name := v.Type().String()
		told[name] = append(told[name], -1)
		for _, field := range []string{"Op", "Kind"} {
			if f := v.FieldByName(field); f.IsValid() {
				told[f.Type().String()] = append(told[f.Type().String()], int64(f.Uint()))
			}
		}
	}
	events := 0
	for _, r := range loadRooms(t) {
		scope := r.types.Scope()
		for _, name := range scope.Names() {
			switch obj := scope.Lookup(name).(type) {
			case *types.TypeName:
				if obj.Exported() && isEvent(obj) {
					events++
					if told[r.types.Name()+"."+name] == nil {
						t.Errorf("eventtest has no %s.%s", r.types.Name(), name)
					}
				}
			case *types.Const:
				values := told[nameOfType(obj)]
				n, exact := constant.Int64Val(constant.ToInt(obj.Val()))
				if obj.Exported() && exact && values != nil && !slices.Contains(values, n) {
					t.Errorf("eventtest has no event of %s.%s", r.types.Name(), name)
				}
			}
		}
	}
	if events < 11 {
		t.Errorf("%d types of events were found", events)
	}
}

// isEvent reports whether a pointer to a struct type has an EventName.
func isEvent(obj *types.TypeName) bool {
	if _, ok := obj.Type().Underlying().(*types.Struct); !ok {
		return false
	}
	method, _, _ := types.LookupFieldOrMethod(types.NewPointer(obj.Type()), true, obj.Pkg(), "EventName")
	fn, ok := method.(*types.Func)
	return ok && fn.Signature().Params().Len() == 0
}

// nameOfType returns the name of a constant's type with that of its package.
func nameOfType(c *types.Const) string {
	n, ok := c.Type().(*types.Named)
	if !ok || n.Obj().Pkg() == nil {
		return ""
	}
	return n.Obj().Pkg().Name() + "." + n.Obj().Name()
}

// docs/reference/series.md has a line for each series, with its kind, unit and labels, and for no other.
func TestObservabilityListsEverySeries(t *testing.T) {
	kinds := map[series.Kind]string{series.Counter: "counter", series.Gauge: "gauge", series.Histogram: "histogram"}
	var want []string
	for _, s := range series.All() {
		labels := slices.Clone(s.Labels)
		if s.PerTenant {
			labels = append(labels, series.LabelTenant)
		}
		fields := []string{"`" + s.Name + "`", kinds[s.Kind], strings.Trim(s.Unit, "{}"), strings.Join(labels, ", "), s.Help}
		want = append(want, strings.ReplaceAll("| "+strings.Join(fields, " | ")+" |", "|  |", "| |"))
	}
	var got []string
	for line := range strings.Lines(read(t, "docs/reference/series.md")) {
		if strings.HasPrefix(line, "| `headgate.") {
			parts := strings.Split(line, " |")
			got = append(got, strings.Join(parts[:len(parts)-2], " |")+" |")
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
