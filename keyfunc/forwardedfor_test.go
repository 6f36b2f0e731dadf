package keyfunc_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/keyfunc"
)

func TestLongHeaderIsBounded(t *testing.T) {
	trust, err := keyfunc.TrustedProxies("10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		lines []string
		most  float64 // a hop that is not a bare address costs the error of one failed parse
	}{
		{"one line of trusted hops", []string{strings.Repeat("10.0.0.2,", 1<<17) + "10.0.0.2"}, 4},
		{"one line of hops with ports", []string{strings.Repeat("10.0.0.2:80,", 1<<17) + "10.0.0.2:80"}, 54},
		{"many lines of trusted hops", slices.Repeat([]string{"10.0.0.2"}, 1<<17), 4},
		{"many empty lines", slices.Repeat([]string{""}, 1<<17), 5},
		{"one hop without a comma", []string{strings.Repeat("1", 1<<20)}, 4},
		{"spaces", []string{strings.Repeat(" ", 1<<20)}, 4},
		{"commas", []string{strings.Repeat(",", 1<<20)}, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request(func(r *http.Request) {
				r.RemoteAddr = "10.0.0.1:1"
				r.Header["X-Forwarded-For"] = c.lines
			})
			if got, err := trust(r); got != "10.0.0.1" || err != nil {
				t.Fatalf("got %q, %v; want the peer", got, err)
			}
			if n := testing.AllocsPerRun(20, func() { _, _ = trust(r) }); n > c.most {
				t.Errorf("%v allocations, want at most %v", n, c.most)
			}
		})
	}
}

func TestBoundsCountOverAllLines(t *testing.T) {
	trust, err := keyfunc.TrustedProxies("10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	padded := strings.Repeat(" ", 1000) + "10.0.0.2"
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"50 hops", append([]string{"198.51.100.1"}, slices.Repeat([]string{"10.0.0.2"}, 49)...), "198.51.100.1"},
		{"51 hops", append([]string{"198.51.100.1"}, slices.Repeat([]string{"10.0.0.2"}, 50)...), "10.0.0.1"},
		{"below 4 KiB", append([]string{"198.51.100.1"}, slices.Repeat([]string{padded}, 4)...), "198.51.100.1"},
		{"above 4 KiB", append([]string{"198.51.100.1"}, slices.Repeat([]string{padded}, 5)...), "10.0.0.1"},
		{"empty element", []string{"198.51.100.1, ,10.0.0.2"}, "10.0.0.1"},
		{"empty last line", []string{"198.51.100.1", ""}, "10.0.0.1"},
		{"the cut is never a shorter address", []string{"9" + strings.Repeat("8", 4096-len(",10.0.0.2")-1) + ",10.0.0.2"}, "10.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := trust(request(func(r *http.Request) {
				r.RemoteAddr = "10.0.0.1:1"
				r.Header["X-Forwarded-For"] = c.lines
			}))
			if got != c.want || err != nil {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}
