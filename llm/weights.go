package llm

import "cmp"

// Weights are integers for one token of each kind. Input and Output are both set, or neither. A
// CacheRead or CacheWrite of 0 counts as Input. Sound and images count as the text beside them, and
// a cache's longer lifetime as its other one.
type Weights struct{ Input, CacheRead, CacheWrite, Output int64 }

func (w Weights) check(at string, fault func(string, ...any)) {
	if least := min(w.Input, w.CacheRead, w.CacheWrite, w.Output); least < 0 {
		fault("%s has %d: it must not be negative", at, least)
	}
	if (w.Input == 0) != (w.Output == 0) || w.Input == 0 && w.CacheRead+w.CacheWrite > 0 {
		fault("%s is %+v: set both Input and Output, or nothing", at, w)
	}
}

// of returns the weighted sum of a usage.
func (w Weights) of(u Usage) (sum amount) {
	w = w.complete()
	for _, n := range [...][2]int64{
		{w.Input, u.Input}, {w.Input, u.AudioIn}, {w.Input, u.ImageIn},
		{w.CacheRead, u.CacheRead}, {w.CacheWrite, u.CacheWrite}, {w.CacheWrite, u.CacheWriteLong},
		{w.Output, u.Output}, {w.Output, u.AudioOut}, {w.Output, u.ImageOut},
	} {
		sum.addProduct(n[0], n[1])
	}
	return sum
}

// complete returns the weights with Input in place of a CacheRead or CacheWrite of 0.
func (w Weights) complete() Weights {
	w.CacheRead, w.CacheWrite = cmp.Or(w.CacheRead, w.Input), cmp.Or(w.CacheWrite, w.Input)
	return w
}

// weights returns the units of one token of each kind.
func (m *Model) weights() Weights {
	if m.Weights == (Weights{}) {
		return Weights{1, 1, 1, 1}
	}
	return m.Weights.complete()
}
