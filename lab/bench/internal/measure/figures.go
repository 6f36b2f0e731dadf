package measure

import "time"

// The figures that tables are made of.
var (
	P50   = func(s *Sample) float64 { return micros(s.P50) }
	P99   = func(s *Sample) float64 { return micros(s.P99) }
	Rate  = (*Sample).Rate
	CPU   = func(s *Sample) float64 { return s.Cost.CPU }
	Reads = func(s *Sample) float64 { return s.Cost.Reads }
	// Each is the time per operation of all workers together: what one takes where there is one worker.
	Each    = func(s *Sample) float64 { return float64(s.Elapsed.Nanoseconds()) / s.Ops() }
	Mallocs = func(s *Sample) float64 { return s.Cost.Mallocs }
	Bytes   = func(s *Sample) float64 { return s.Cost.Bytes }
	Faults  = func(s *Sample) float64 { return float64(s.Wrong+s.Failed) / s.Ops() }
)

// Own is the median of a figure.
func (r *Result) Own(figure func(*Sample) float64) float64 {
	return r.Median(func(p *Pair) float64 { return figure(&p.Own) })
}

// ToPing is the median ratio of a figure to that of the PINGs beside it.
func (r *Result) ToPing(figure func(*Sample) float64) float64 {
	return r.Median(func(p *Pair) float64 { return p.ToPing(figure) })
}

// Reference is the median of a figure of the PINGs beside all contenders.
func Reference(results []Result, figure func(*Sample) float64) float64 {
	return ReferenceAt(results, figure, 0.5)
}

// ReferenceAt is another quantile of it.
func ReferenceAt(results []Result, figure func(*Sample) float64, q float64) float64 {
	var values []float64
	for _, r := range results {
		for _, p := range r.Pairs {
			values = append(values, p.Ping(figure))
		}
	}
	return Quantile(values, q)
}

// Answered is all the slices' operations, by their answers.
func (r *Result) Answered() (right, wrong, failed int64) {
	for _, p := range r.Pairs {
		right += p.Own.Right + p.Alone.Right
		wrong += p.Own.Wrong + p.Alone.Wrong
		failed += p.Own.Failed + p.Alone.Failed
	}
	return right, wrong, failed
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
