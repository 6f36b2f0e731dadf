package plans

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// names are those of the limits and the caps of a Set, without the models behind them.
type names struct {
	limits, caps []string
	kept         []string // the names of KeptName that are there
}

func namesOf(set *Set) *names {
	limits, caps := make(map[string]bool), make(map[string]bool)
	for _, p := range set.plans {
		addNames(limits, p.Limits)
		addNames(caps, p.Caps)
	}
	kept := make(map[string]bool)
	for _, name := range sortedKeys(limits) {
		if limits[KeptName(name)] {
			kept[KeptName(name)] = true
			delete(limits, KeptName(name))
		}
	}
	for _, name := range sortedKeys(limits) {
		for _, answer := range Then(name) {
			delete(limits, answer)
		}
	}
	return &names{sortedKeys(limits), sortedKeys(caps), sortedKeys(kept)}
}

// checkNames returns a fault for each limit in a file that has the name of what its then or keep is, and
// for each limit of a plan that has the name of what is kept and is something else.
func (s *Set) checkNames(named map[string]string) (faults []fault) {
	n := namesOf(s)
	for _, path := range sortedKeys(named) {
		if of, _, _ := strings.Cut(named[path], "/"); !slices.Contains(n.limits, of) {
			faults = append(faults, fault{path, "has the name of what a then or a keep of another limit is: " +
				"write it there, or choose another name"})
		}
	}
	if len(faults) > 0 {
		return faults
	}
	for _, name := range s.Names() {
		faults = append(faults, n.checkKept("plans."+name+".", s.plans[name].Plan)...)
	}
	return faults
}

// checkKept returns a fault for each limit of a plan that has a name of KeptName and does not keep a count.
func (n *names) checkKept(path string, p Plan) (faults []fault) {
	for _, name := range sortedKeys(p.Limits) {
		of, _, _ := strings.Cut(name, "/")
		limit, _ := p.Limits[name].(core.TokenBucket)
		if slices.Contains(n.kept, of) && limit.Burst != mostKept {
			faults = append(faults, fault{path + "limits." + name, "has the name of what is kept of another " +
				"limit: it must be what the keep of a file makes"})
		}
	}
	return faults
}

// KeptName returns the name of the limit that counts what the limit of a name has admitted in one period,
// and keeps that for the keep that a file has for it.
func KeptName(limit string) string { return withSuffix(limit, ".kept") }

// withSuffix returns a name of a limit with a suffix before the model.
func withSuffix(limit, suffix string) string {
	of, model, perModel := strings.Cut(limit, "/")
	if perModel {
		model = "/" + model
	}
	return of + suffix + model
}

// KeptName returns the name of the func KeptName if a plan has a limit of that name, for
// nethttp.Quotas. It is fixed by Names as other names are.
func (b *Book) KeptName(limit string) string {
	if name := KeptName(limit); slices.Contains(namesOf(b.Set()).kept, name) {
		return name
	}
	return ""
}

// Then returns the names of the limits that answer when the limit of a name is spent, in their order: its
// overage, and what slows requests down afterwards. A plan that does not name them refuses the request.
// The names are those that a plan has for a limit's then in a file; the policies of the limits have them
// too, so what is spent is counted apart.
func Then(limit string) []string {
	return []string{withSuffix(limit, ".overage"), withSuffix(limit, ".slow")}
}

// Then is the func Then, for nethttp.Quotas. It leaves out names that are too long for a limit.
func (b *Book) Then(limit string) []string {
	return slices.DeleteFunc(Then(limit), func(name string) bool { return len(checkLimitName("", name)) > 0 })
}

// unknown returns an error for each limit and cap of a plan that is none of the names, nor answers or keeps
// for one of them.
func (n *names) unknown(path string, p Plan) error {
	limits := slices.Concat(n.limits, n.kept)
	for _, name := range n.limits {
		limits = append(limits, Then(name)...)
	}
	var faults []fault
	for _, name := range without(sortedKeys(p.Limits), limits) {
		faults = append(faults, fault{path + "limits." + name, "is of no plan"})
	}
	for _, name := range without(sortedKeys(p.Caps), n.caps) {
		faults = append(faults, fault{path + "caps." + name, "is of no plan"})
	}
	return joined("", faults, nil)
}

// without returns the names that are not among the known ones, whatever their models.
func without(names, known []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		of, _, _ := strings.Cut(name, "/")
		return slices.Contains(known, of)
	})
}

// addNames adds the names of limits or caps.
func addNames[T any](all map[string]bool, named map[string]T) {
	for name := range named {
		of, _, _ := strings.Cut(name, "/")
		all[of] = true
	}
}

// check returns an error if a plan of a Set lacks one of the names, or has another.
func (n *names) check(set *Set) error {
	var faults []fault
	for _, plan := range set.Names() {
		p := set.plans[plan]
		path := "plans." + plan
		for _, name := range without(n.limits, sortedKeys(p.Limits)) {
			faults = append(faults, fault{path + ".limits", fmt.Sprintf(
				"do not name %s, which another plan names: write its limit, unlimited or deny", name)})
		}
		for _, name := range without(n.caps, sortedKeys(p.Caps)) {
			faults = append(faults, fault{path + ".caps", fmt.Sprintf(
				"do not name %s, which another plan names: write its limit", name)})
		}
	}
	now := namesOf(set)
	limits := without(slices.Concat(now.limits, now.kept), slices.Concat(n.limits, n.kept))
	for _, name := range limits {
		faults = append(faults, fault{"plans", "have the limit " + name + newName})
	}
	for _, name := range without(now.caps, n.caps) {
		faults = append(faults, fault{"plans", "have the cap " + name + newName})
	}
	return joined("", faults, nil)
}

const newName = ", which was not there when the program started"

// Names returns the names of the limits and the caps that the plans have now, without models and
// without those of Then and KeptName, in alphabetic order. They are fixed from then on: a Set is
// refused if one of its plans lacks one of them, or names another. The error has every name that a
// plan of the present Set lacks. nethttp.Quotas calls Names, since a Guard keeps the rules that it
// was made with. A program whose Guards are its own compares the names with those of its policies.
func (b *Book) Names() (limits, caps []string, err error) {
	b.sets.loading.Lock()
	defer b.sets.loading.Unlock()
	set := b.Set()
	n := namesOf(set)
	if err := n.check(set); err != nil {
		return nil, nil, err
	}
	b.sets.fixed = n
	return slices.Clone(n.limits), slices.Clone(n.caps), nil
}

// Counts reports whether a limit counts a request: SetConfig.Routes has the request's route under
// the limit's name, or has nothing there.
func (b *Book) Counts(limit string, r *http.Request) bool {
	routes := b.Set().routes[limit]
	if routes == nil {
		return true
	}
	route, _ := route(r)
	if slices.Contains(routes, route) {
		return true
	}
	method, _ := method(r)
	return slices.Contains(routes, method+" "+route)
}

var route, method = keyfunc.Route(), keyfunc.Method()

// countable reports whether Counts sees requests of a method under its name. It sees HEAD as GET.
func countable(name string) bool {
	known, _ := method(&http.Request{Method: name}) // does not fail
	return known == name
}

// useRoutes keeps a copy of the routes, or returns their faults.
func (s *Set) useRoutes(routes map[string][]string) (faults []fault) {
	known := namesOf(s).limits
	for _, name := range sortedKeys(routes) {
		path := "routes." + name
		if !slices.Contains(known, name) {
			faults = append(faults, fault{path, "is no limit of a plan"})
		}
		if len(routes[name]) == 0 {
			faults = append(faults, fault{path, "is empty: it must have a route"})
		}
		for i, route := range routes[name] {
			method, pattern, both := strings.Cut(route, " ")
			if !both {
				method, pattern = "GET", route
			}
			if !countable(method) || !strings.HasPrefix(pattern, "/") {
				faults = append(faults, fault{fmt.Sprintf("%s[%d]", path, i),
					fmt.Sprintf("is %.80q: it must be a pattern such as /v1/users/{id}, "+
						"or a method, a space and a pattern", route)})
			}
		}
		s.routes[strings.Clone(name)] = slices.Clone(routes[name])
	}
	return faults
}
