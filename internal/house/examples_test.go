package house_test

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// exampleTests run the examples of this module, each built once.
var exampleTests = map[string]func(t *testing.T, program string){
	"nethttp": testFramework, "chi": testFramework, "gin": testFramework, "echo": testFramework, "echov5": testFramework,
	"quickstart": testQuickstart, "quotas": testQuotas, "webhooks": testWebhooks, "outbound": testOutbound,
}

// Every example opens with the line that runs it from the root, passes its tests and does what it
// shows. "./..." skips their folder. Modules of their own are built and run by their own tests.
func TestExamples(t *testing.T) {
	t.Parallel()
	mains, err := filepath.Glob("_examples/*/main.go")
	if err != nil || len(mains) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	programs := t.TempDir()
	build, check := []string{"build", "-o", programs}, []string{"test", "./_examples/recipes"}
	var names []string
	for _, path := range mains {
		folder := filepath.ToSlash(filepath.Dir(path))
		if line := "\n//\n//\tgo -C " + folder + " run .\n//\n"; !strings.Contains(read(t, path), line) {
			t.Errorf("the comment of %s does not contain%s", path, line)
		}
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			continue
		}
		names, build = append(names, filepath.Base(folder)), append(build, "./"+folder)
		if tests, _ := filepath.Glob(folder + "/*_test.go"); len(tests) > 0 {
			check = append(check, "./"+folder)
		}
	}
	if out, err := exec.Command("go", build...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range names {
		test := exampleTests[name]
		if test == nil {
			t.Errorf("no test runs %s", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := filepath.Join(programs, name)
			if _, err := os.Stat(program); err != nil {
				program += ".exe"
			}
			test(t, program)
		})
	}
	t.Run("tests", func(t *testing.T) {
		t.Parallel()
		if out, err := exec.Command("go", check...).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
}

// README's programs for streams and quotas each compile beside accounts.go, and the test of the plans
// passes.
func TestReadmeProgramsPassTheirTest(t *testing.T) {
	code := blocks(t, "README.md")
	gatetest.Need(t, len(code), 5, "blocks")
	_, file, _ := strings.Cut(read(t, "README.md"), "```yaml\n")
	file, _, _ = strings.Cut(file, "```")
	write := func(folder string, files map[string]string) (sources []string) {
		for name, text := range files {
			path := filepath.Join(folder, name)
			gatetest.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			if filepath.Ext(name) == ".go" {
				sources = append(sources, path)
			}
		}
		return sources
	}
	streams := write(t.TempDir(), map[string]string{
		"main.go": code[1].code, "accounts.go": code[3].code,
		"chat.go": "package main\n\nimport \"net/http\"\n\nfunc chat(http.ResponseWriter, *http.Request) {}\n",
	})
	quotas := write(t.TempDir(), map[string]string{
		"main.go": code[2].code, "accounts.go": code[3].code, "main_test.go": code[4].code, "plans.yaml": file,
	})
	for _, args := range [][]string{append([]string{"vet"}, streams...), append([]string{"test"}, quotas...)} {
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// start runs the program of an example in its folder, on a free port, and returns what it prints.
func start(t *testing.T, program string, env ...string) *bufio.Reader {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Dir = filepath.Join("_examples", strings.TrimSuffix(filepath.Base(program), ".exe"))
	cmd.Env = append(append(os.Environ(), "ADDR=127.0.0.1:0", "REDIS_URL=", "GIN_MODE=release"), env...)
	cmd.Stderr = t.Output()
	out := gatetest.Must(cmd.StdoutPipe())(t)
	gatetest.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return bufio.NewReader(out)
}

// serve runs a program and returns the URL in its first line.
func serve(t *testing.T, program string, env ...string) string {
	t.Helper()
	line := gatetest.Must(start(t, program, env...).ReadString('\n'))(t)
	url := regexp.MustCompile(`http://[0-9.:]+[0-9]`).FindString(line)
	if url == "" {
		t.Fatalf("no URL in %q", line)
	}
	return url
}

// try runs the lines that a program prints for its user, and returns the output of each.
func try(t *testing.T, printed *bufio.Reader) (outputs []string) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip(err)
	}
	for {
		line, err := printed.ReadString('\n')
		gatetest.NoError(t, err)
		if strings.HasPrefix(line, "  ") {
			out, err := exec.Command("sh", "-c", line).Output()
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			outputs = append(outputs, string(out))
		} else if len(outputs) > 0 {
			return outputs
		}
	}
}

func testQuotas(t *testing.T, program string) {
	outputs := try(t, start(t, program))
	if n := len(outputs); n != 5 || !strings.Contains(outputs[0], "429") || !strings.Contains(outputs[n-1], `"q":1500,`) {
		t.Errorf("the printed lines show %q", outputs)
	}
}

func testWebhooks(t *testing.T, program string) {
	outputs := try(t, start(t, program))
	if len(outputs) != 2 || outputs[0] != "204\n204\n" || outputs[1] != "401\n401\n401\n429\n" {
		t.Errorf("the printed lines show %q", outputs)
	}
}

func status(t *testing.T, url string, headers ...string) *http.Response {
	t.Helper()
	r := gatetest.Must(http.NewRequest(http.MethodGet, url, nil))(t)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	response := gatetest.Must(http.DefaultClient.Do(r))(t)
	response.Body.Close()
	return response
}

// The same API in each framework answers the same.
func testFramework(t *testing.T, program string) {
	url := serve(t, program)
	for i, want := range []struct {
		path, body string
		status     int
	}{
		{"/public", "hello\n", 200},
		{"/t/acme/reports", "a report of acme, 2 more\n", 200},
		{"/t/acme/reports", "a report of acme, 1 more\n", 200},
		{"/t/acme/reports", "a report of acme, 0 more\n", 200},
		{"/t/acme/reports", "", 429},
		{"/t/umbrella/reports", "a report of umbrella, 2 more\n", 200},
		{"/public", "hello\n", 200},
		{"/nope", "", 404},
	} {
		r := gatetest.Must(http.Get(url + want.path))(t)
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != want.status || want.body != "" && string(body) != want.body {
			t.Errorf("request %d, %s: status %d, %s, %v", i, want.path, r.StatusCode, body, err)
		}
		if (r.Header.Get("Retry-After") != "") != (want.status == 429) || !strings.Contains(r.Header.Get("RateLimit"), `"address"`) {
			t.Errorf("request %d, %s: headers %v", i, want.path, r.Header)
		}
	}
	open := func(want int) io.Closer {
		r := gatetest.Must(http.Get(url + "/t/acme/events"))(t)
		if line, _ := bufio.NewReader(r.Body).ReadString('\n'); r.StatusCode != want || want == 200 && line != "data: 1\n" {
			t.Errorf("a stream: status %d, %q, want %d", r.StatusCode, line, want)
		}
		return r.Body
	}
	first := open(200)
	defer open(200).Close()
	open(429).Close()
	first.Close()
	for { // the server sees the client leave a moment later
		r := gatetest.Must(http.Get(url + "/t/acme/events"))(t)
		r.Body.Close()
		if r.StatusCode == 200 {
			break
		}
	}
}

// The frameworks' code in docs/reference/frameworks.md is that of the examples, which are built above.
func TestDocumentationShowsTheExamples(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "docs/reference/frameworks.md"), "\n## With an adapter\n")
	section, _, _ = strings.Cut(section, "\n## ")
	snippets := regexp.MustCompile("(?s)\\(\\.\\./\\.\\./(_examples/[a-z0-9]+/main.go)\\)[^`]*(?:`[^`]+`[^`]*)*```go\n(.*?)```").
		FindAllStringSubmatch(section, -1)
	gatetest.Need(t, len(snippets), 4, "snippets")
	for _, s := range snippets {
		code := "\t" + strings.ReplaceAll(strings.TrimSuffix(s[2], "\n"), "\n", "\n\t") + "\n"
		if !strings.Contains(read(t, s[1]), code) {
			t.Errorf("%s does not contain\n%s", s[1], code)
		}
	}
}

// Two replicas that ask for twice as much as a provider allows are refused nothing, and none fails. On a
// machine that stalls, what was admitted in two windows may reach the provider in one.
// The four replicas of the example use the providers, and lose no stream, whatever becomes of Redis.
func testOutbound(t *testing.T, program string) {
	row := regexp.MustCompile(`^ *([a-z]+) .* ([0-9.]+) %  +([0-9.]+) %  +([0-9]+)  +[0-9]+  +([0-9]+)  +([0-9]+) *$`)
	for name, args := range map[string][]string{"memory": {"-for", "2s"}, "Redis fails": {"-for", "7s", "-server", "redis-server"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			last := len(args) > 2 && gatetest.Long()
			if last {
				args[1] = "1m"
			}
			if _, err := exec.LookPath("redis-server"); len(args) > 2 && err != nil {
				t.Skip(err)
			}
			var fault string
			for range 3 {
				cmd := exec.Command(program, args...)
				cmd.Stderr = t.Output()
				out := gatetest.Must(cmd.Output())(t)
				t.Logf("%s", out)
				lines := strings.Split(strings.TrimSpace(string(out)), "\n")[1:]
				gatetest.Need(t, len(lines), 5, "kinds of providers")
				fault = ""
				for _, line := range lines {
					m := row.FindStringSubmatch(line)
					if m == nil {
						t.Fatalf("no row: %q", line)
					}
					used, _ := strconv.ParseFloat(m[2], 64)
					refused, _ := strconv.ParseFloat(m[3], 64)
					if m[4] == "0" || m[5] != "0" || m[6] != "0" || last && (used < 95 || refused > 1.5) {
						fault = line
					}
				}
				if fault == "" {
					return
				}
			}
			t.Error(fault)
		})
	}
}

func testQuickstart(t *testing.T, program string) {
	t.Run("memory", func(t *testing.T) {
		url := serve(t, program)
		for range 5 {
			if r := status(t, url+"/hello"); r.StatusCode != 200 || r.Header.Get("RateLimit") == "" {
				t.Fatalf("status %d, headers %v", r.StatusCode, r.Header)
			}
		}
		gatetest.Equal(t, status(t, url+"/reports").StatusCode, 400, "without a key: status")
	})
	t.Run("two processes share a Redis", func(t *testing.T) {
		redis := "REDIS_URL=redis://" + redistest.Start(t).Addr
		a, b := serve(t, program, redis), serve(t, program, redis)
		start := time.Now()
		admitted, late := 0, 0
		for i := range 30 {
			r := status(t, []string{a, b}[i%2]+"/reports", "X-Api-Key: k", "X-Tenant: acme")
			switch r.StatusCode {
			case 200:
				admitted++
			case 429:
				if r.Header.Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
			case 503: // Redis's answer came late, and its charge may count
				late++
			default:
				t.Fatalf("status %d", r.StatusCode)
			}
		}
		// A burst of 10, and 10 a minute.
		if most := 10 + int(time.Since(start)/(6*time.Second)); admitted+late < 10 || admitted > most {
			t.Errorf("%d admitted, want from 10 to %d; %d answers of Redis came late", admitted, most, late)
		}
	})
	t.Run("Redis dies and comes back", func(t *testing.T) {
		server := redistest.Start(t)
		url := serve(t, program, "REDIS_URL=redis://"+server.Addr)
		ask := func() int { return status(t, url+"/reports", "X-Api-Key: k", "X-Tenant: acme").StatusCode }
		for until := time.Now().Add(time.Minute); ask() != 200; {
			if time.Now().After(until) {
				t.Fatal("no answer through Redis")
			}
		}
		for name, fault := range map[string]func(){"killed": server.Kill, "stopped": server.Stop} {
			fault()
			for range 10 {
				if s := ask(); s != 503 { // the tenant's policy is Closed
					t.Fatalf("%s: status %d", name, s)
				}
				if s := status(t, url+"/hello").StatusCode; s != 200 && s != 429 { // this one is Local
					t.Fatalf("%s: status %d of /hello", name, s)
				}
			}
			server.Restart()
			for until := time.Now().Add(time.Minute); ask() == 503; {
				if time.Now().After(until) {
					t.Fatalf("%s: not back on Redis", name)
				}
			}
		}
	})
}
