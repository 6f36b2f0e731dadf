package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"testing"
)

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.00012: "0.0001", 0.0123: "0.012", 0.996: "1.00", 9.994: "9.99", 9.996: "10.0", 99.6: "100", 1234.5: "1,235",
		1e6: "1,000,000", -12345: "-12,345", math.Inf(1): "-",
	} {
		if got := Number(v); got != want {
			t.Errorf("Number(%v) = %q, want %q", v, got, want)
		}
	}
}

// Also lines that are zero here or everywhere, as of what only fails.
func TestPlot(t *testing.T) {
	panels := []Panel{
		{Title: "one", Lines: []Line{
			{Name: "a", X: []float64{1, 16}, Y: []float64{1, 20}},
			{Name: "b", X: []float64{1, 16}, Y: []float64{0, 0.5}},
		}},
		{Title: "two", Lines: []Line{
			{Name: "a", X: []float64{16, 64}, Y: []float64{2, 3}},
			{Name: "b", X: []float64{16, 64}, Y: []float64{0, 0}},
		}},
	}
	var b bytes.Buffer
	if err := Plot(&b, panels); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(&b); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
