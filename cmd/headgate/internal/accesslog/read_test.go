package accesslog

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/headgate/headgate/internal/gatetest"
)

func read(t *testing.T, r io.Reader) (all []string, faults Faults) {
	t.Helper()
	_, faults, err := Read(t.Context(), r, func(e *Request) error {
		at := time.UnixMicro(e.Time).UTC().Format(time.RFC3339Nano)
		all = append(all, fmt.Sprintf("%s|%s|%s|%s|%s|%s", at, e.Client, e.User, e.Host, e.Method, e.Path))
		return nil
	})
	gatetest.NoError(t, err)
	return all, faults
}

// The lines are those that servers wrote, or that their documentation shows.
func TestFormats(t *testing.T) {
	text := string(gatetest.Must(os.ReadFile("testdata/formats.txt"))(t))
	for _, row := range strings.Split(strings.TrimSpace(text), "\n\n")[1:] {
		parts := strings.Split(row, "\n") // the name, the line and what is read
		t.Run(parts[0], func(t *testing.T) {
			all, faults := read(t, strings.NewReader(parts[1]+"\r\n"))
			if len(all) != 1 || all[0] != parts[2] || faults.Lines != 0 {
				t.Errorf("%q, want %q; %+v", all, parts[2], faults)
			}
		})
	}
}

func TestFaultyLinesAreCounted(t *testing.T) {
	good := `127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326`
	bad := []string{
		"# a comment", "{", "{}", `{"ts":1646861401,"request":{}`, `{"ts":"yesterday"}`,
		`127.0.0.1 - frank [10/Okt/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326`,
		`127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /`,
		`127.0.0.1 - frank [10/Oct/1960:13:55:36 -0700] "GET / HTTP/1.0" 200 2326`,
		"[", `{"ts":1,`, `{"ts":1}}`[:8] + `]`, strings.Repeat("x", 3*maxLine),
		// Times that no clock holds.
		`192.0.2.1 - - [31/Dec/2200:23:59:59 +0000] "GET / HTTP/1.1" 200 5`,
		`192.0.2.1 - - [31/Dec/9999:23:59:59 +0000] "GET / HTTP/1.1" 200 5`,
		`192.0.2.1 - - [31/Dec/1969:23:59:59 +0000] "GET / HTTP/1.1" 200 5`,
		`{"ts":9.9e18}`, `{"ts":1e300}`, `{"ts":"Inf"}`, `{"ts":"NaN"}`, `{"ts":-1e300}`,
	}
	last := `192.0.2.1 - - [31/Dec/2199:23:59:59 +0000] "GET / HTTP/1.1" 200 5` // the latest year
	text := good + "\n\n" + strings.Join(bad, "\n") + "\n" + last
	all, faults := read(t, strings.NewReader(text))
	if len(all) != 2 || faults.Lines != int64(len(bad)) || faults.First != 3 || faults.Text != bad[0] {
		t.Errorf("%q, %+v", all, faults)
	}
}

// A long log keeps its order, whatever the size of the reads is.
func TestOrderOfLongLog(t *testing.T) {
	var text bytes.Buffer
	const lines = 20_000
	for i := range lines {
		fmt.Fprintf(&text, "10.0.%d.%d - - [10/Oct/2000:13:55:36 -0700] \"GET /%d HTTP/1.0\" 200 1\n", i/256, i%256, i)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(text.Bytes())
	_ = z.Close()
	for name, r := range map[string]io.Reader{
		"plain": bytes.NewReader(text.Bytes()), "gzip": bytes.NewReader(zipped.Bytes()),
		"halves": iotest.HalfReader(bytes.NewReader(text.Bytes())),
	} {
		t.Run(name, func(t *testing.T) {
			i := 0
			n, faults, err := Read(t.Context(), r, func(e *Request) error {
				if want := fmt.Sprint("/", i); e.Path != want || e.Line != int64(i+1) {
					return fmt.Errorf("line %d has %s, want %s", e.Line, e.Path, want)
				}
				i++
				return nil
			})
			if err != nil || n != lines || i != lines || faults.Lines != 0 {
				t.Errorf("%d lines, %d entries, %+v, %v", n, i, faults, err)
			}
		})
	}
}

func TestReadEndsEarly(t *testing.T) {
	line := `127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326` + "\n"
	text := strings.Repeat(line, 50_000)
	stop := errors.New("stop")
	_, _, err := Read(t.Context(), strings.NewReader(text), func(e *Request) error { return stop })
	gatetest.Is(t, err, stop, "error of f")
	broken := io.MultiReader(strings.NewReader(text), iotest.ErrReader(stop))
	if n, _, err := Read(t.Context(), broken, func(*Request) error { return nil }); !errors.Is(err, stop) {
		t.Errorf("error of the reader after %d lines: %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, _, err = Read(ctx, strings.NewReader(text), func(*Request) error { cancel(); return nil })
	gatetest.Is(t, err, context.Canceled, "cancelled")
}

func TestTruncatedGzip(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	fmt.Fprintln(z, `127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326`)
	_ = z.Close()
	_, _, err := Read(t.Context(), bytes.NewReader(zipped.Bytes()[:zipped.Len()-8]), func(*Request) error { return nil })
	gatetest.Is(t, err, io.ErrUnexpectedEOF, "got")
}

func FuzzParse(f *testing.F) {
	f.Add(`127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326`)
	f.Add(`{"ts":1646861401.5,"request":{"client_ip":"::1","method":"GET","uri":"/\u0026"},"status":200}`)
	f.Fuzz(func(t *testing.T, line string) {
		var e Request
		if err := parse(line, &e); err == nil && e.Time <= 0 {
			t.Errorf("%+v of %q", e, line)
		}
	})
}
