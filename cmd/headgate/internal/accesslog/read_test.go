package accesslog

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/headgate/headgate/internal/gatetest"
)

func read(t *testing.T, r io.Reader) (all []string, faults Faults) {
	t.Helper()
	_, faults, err := Read(t.Context(), r, func(e *Entry) error {
		at := time.UnixMicro(e.Time).UTC().Format(time.RFC3339Nano)
		all = append(all, fmt.Sprintf("%s|%s|%s|%s|%s|%s|%d", at, e.Client, e.User, e.Host, e.Method, e.Path, e.Status))
		return nil
	})
	gatetest.NoError(t, err)
	return all, faults
}

// The lines are those that servers wrote, or that their documentation shows.
func TestFormats(t *testing.T) {
	for name, c := range map[string]struct{ line, want string }{
		"common, of Apache's documentation": {
			`127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326`,
			"2000-10-10T20:55:36Z|127.0.0.1|frank||GET|/apache_pb.gif|200",
		},
		"combined": {
			`114.5.1.4 - - [11/Jun/2023:11:23:45 +0800] "GET /example/path/file.img HTTP/1.1" 429 568 "-" "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/102.0.0.0 Safari/537.36"`,
			"2023-06-11T03:23:45Z|114.5.1.4|||GET|/example/path/file.img|429",
		},
		"combined, an agent with quotes": {
			`66.249.66.1 - - [24/Nov/2026:00:00:01 +0000] "GET /a?b=\"c\" HTTP/2.0" 304 0 "-" "he said \"hello\" [x]"`,
			"2026-11-24T00:00:01Z|66.249.66.1|||GET|/a|304",
		},
		"nginx, a TLS handshake on a plain port": {
			`114.5.1.5 - - [04/Apr/2024:09:02:13 +0800] "\x16\x03\x01\x00\xEE\x01\x00\x00\xEA\x03\x03\x9C\xB4\x92\xC5{\xE9\xEC\x18\xB1\x17\x04f\xCA\x0F ~W\xB9\x94Qs\x01\x02\xE3c'\xA8pB\xC5" 400 163 "-" "-"`,
			"2024-04-04T01:02:13Z|114.5.1.5||||" + "|400",
		},
		"nginx, no request at all": {
			`203.0.113.9 - - [04/Apr/2024:09:02:13 +0000] "" 400 0 "-" "-"`,
			"2024-04-04T09:02:13Z|203.0.113.9||||" + "|400",
		},
		"Apache, a request that timed out": {
			`203.0.113.9 - - [04/Apr/2024:09:02:13 +0000] "-" 408 - "-" "-"`,
			"2024-04-04T09:02:13Z|203.0.113.9||||" + "|408",
		},
		"Apache, vhost_combined": {
			`example.com:443 2001:db8::1 - - [04/Apr/2024:09:02:13 +0000] "POST /login HTTP/1.1" 200 5 "-" "curl/8.5.0"`,
			"2024-04-04T09:02:13Z|2001:db8::1||example.com|POST|/login|200",
		},
		"common, an identity beside an IPv6 address": {
			`2001:db8::5 ident frank [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326`,
			"2000-10-10T20:55:36Z|2001:db8::5|frank||GET|/|200",
		},
		"a user with a blank": {
			`10.0.0.1 - Jane Doe [04/Apr/2024:09:02:13 +0000] "GET / HTTP/1.1" 200 5`,
			"2024-04-04T09:02:13Z|10.0.0.1|Jane Doe||GET|/|200",
		},
		"a proxy's absolute target": {
			`10.0.0.1 - - [04/Apr/2024:09:02:13 +0000] "GET http://example.com/x?y HTTP/1.1" 200 5`,
			"2024-04-04T09:02:13Z|10.0.0.1|||GET|/x|200",
		},
		"Traefik, common": {
			`198.51.100.23 - - [04/Apr/2024:09:02:13 +0000] "GET /api/v1 HTTP/1.1" 200 1043 "-" "-" 4711 "web@docker" "http://172.18.0.3:80" 12ms`,
			"2024-04-04T09:02:13Z|198.51.100.23|||GET|/api/v1|200",
		},
		"Caddy": {
			`{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"127.0.0.1","remote_port":"41342","client_ip":"203.0.113.7","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/a?b=c","headers":{"User-Agent":["curl/7.82.0"],"Accept":["*/*"],"Accept-Encoding":["gzip, deflate, br"]},"tls":{"resumed":false,"version":772,"cipher_suite":4865,"proto":"h2","server_name":"example.com"}},"bytes_read": 0,"user_id":"","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"],"Content-Encoding":["gzip"],"Content-Type":["text/html; charset=utf-8"],"Vary":["Accept-Encoding"]}}`,
			"2022-03-09T21:30:01.524102Z|203.0.113.7||localhost|GET|/a|200",
		},
		"Caddy, a time in ISO 8601": {
			`{"level":"info","ts":"2026-03-22T14:50:51.525Z","logger":"http.log.access","msg":"handled request","request":{"remote_ip":"1.2.3.4","proto":"HTTP/2.0","method":"GET","host":"example.com","uri":"/blog/?page=2","tls":{"version":772}},"user_id":"jane","status":404,"size":29558}`,
			"2026-03-22T14:50:51.525Z|1.2.3.4|jane|example.com|GET|/blog/|404",
		},
		"Traefik, JSON": {
			`{"ClientAddr":"192.168.65.1:29226","DownstreamContentSize":61,"DownstreamStatus":200,"Duration":4854119812,"Overhead":746372,"RequestMethod":"PUT","RequestPath":"/artifactory/api/repositories/audit-probe-repo-20260911","ServiceAddr":"localhost:8081","SpanId":"9f64071f10112c58","StartUTC":"2026-09-10T16:04:02.291926158Z","TraceId":"d8efa380619a54b8b10627015f9693b3","level":"info","msg":"","request_User-Agent":"curl/8.7.1","time":"2026-09-10T16:04:07Z"}`,
			"2026-09-10T16:04:02.291926Z|192.168.65.1|||PUT|/artifactory/api/repositories/audit-probe-repo-20260911|200",
		},
		"Traefik, JSON as Go escapes it": {
			`{"ClientHost":"203.0.113.7","ClientUsername":"-","DownstreamStatus":302,"RequestHost":"tv.localhost","RequestMethod":"GET","RequestPath":"/get.php?username=a\u0026password=b","RouterName":"tv@docker","time":"2026-09-10T16:04:07+02:00"}`,
			"2026-09-10T14:04:07Z|203.0.113.7||tv.localhost|GET|/get.php|302",
		},
		"nginx, JSON": {
			`{"time_local":"04/Apr/2024:09:02:13 +0000","remote_addr":"2001:db8::2","remote_user":"","request":"GET /x HTTP/1.1","status": "200","http_user_agent":"a \"b\" {c}, [d]"}`,
			"2024-04-04T09:02:13Z|2001:db8::2|||GET|/x|200",
		},
		"nginx, JSON with msec": {
			`{ "msec": "1712221333.250", "remote_addr": "192.0.2.1", "request_method": "GET", "request_uri": "/", "status": 499, "tags": [], "nested": {"a": [1, {"ts": 5}]} }`,
			"2024-04-04T09:02:13.25Z|192.0.2.1|||GET|/|499",
		},
	} {
		t.Run(name, func(t *testing.T) {
			all, faults := read(t, strings.NewReader(c.line+"\r\n"))
			if len(all) != 1 || all[0] != c.want || faults.Lines != 0 {
				t.Errorf("%q, want %q; %+v", all, c.want, faults)
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
			n, faults, err := Read(t.Context(), r, func(e *Entry) error {
				if want := fmt.Sprint("/", i); string(e.Path) != want || e.Line != int64(i+1) {
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
	_, _, err := Read(t.Context(), strings.NewReader(text), func(e *Entry) error { return stop })
	gatetest.Is(t, err, stop, "error of f")
	broken := io.MultiReader(strings.NewReader(text), iotest.ErrReader(stop))
	if n, _, err := Read(t.Context(), broken, func(*Entry) error { return nil }); !errors.Is(err, stop) {
		t.Errorf("error of the reader after %d lines: %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, _, err = Read(ctx, strings.NewReader(text), func(*Entry) error { cancel(); return nil })
	gatetest.Is(t, err, context.Canceled, "cancelled")
}

func TestTruncatedGzip(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	fmt.Fprintln(z, `127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326`)
	_ = z.Close()
	_, _, err := Read(t.Context(), bytes.NewReader(zipped.Bytes()[:zipped.Len()-8]), func(*Entry) error { return nil })
	gatetest.Is(t, err, io.ErrUnexpectedEOF, "got")
}

func FuzzParse(f *testing.F) {
	f.Add(`127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326`)
	f.Add(`{"ts":1646861401.5,"request":{"client_ip":"::1","method":"GET","uri":"/\u0026"},"status":200}`)
	f.Fuzz(func(t *testing.T, line string) {
		var p parser
		var e Entry
		if err := p.parse([]byte(line), &e); err == nil && e.Time <= 0 {
			t.Errorf("%+v of %q", e, line)
		}
	})
}
