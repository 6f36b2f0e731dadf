package house_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

func luaFiles(t *testing.T) map[string]string {
	t.Helper()
	files := make(map[string]string)
	gatetest.NoError(t, filepath.WalkDir("lua", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[path] = read(t, path)
		return nil
	}))
	if len(files) < 4 {
		t.Fatalf("only %d files", len(files))
	}
	return files
}

// scripts are those that decide requests. The tests below know their commands.
var scripts = map[string]string{
	"decide": headgate.Script("decide"), injectedDecide: redistest.Script("decide"),
	"window": headgate.Script("window"), "sliding_window": headgate.Script("sliding_window"),
}

const injectedDecide = "decide on a test's clock"

var (
	luaComment = regexp.MustCompile(`--[^\n]*`)
	luaString  = regexp.MustCompile(`'[^'\n]*'|"[^"\n]*"`)
)

// code returns a script without its comments and with every string empty.
func code(script string) string {
	// No string contains two dashes, as TestLuaStringsContainNoDashes checks. Otherwise luaComment
	// would remove the rest of its line.
	return luaString.ReplaceAllString(luaComment.ReplaceAllString(script, ""), "''")
}

func TestScriptsAreMadeOfAllFiles(t *testing.T) {
	var all strings.Builder
	for name, script := range headgate.Scripts() {
		if script == "" || script != headgate.Script(name) {
			t.Errorf("script %s has %d bytes", name, len(script))
		}
		all.WriteString(script)
	}
	for name, text := range luaFiles(t) {
		lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(text), "\n"), func(line string) bool {
			return len(line) < 20 || strings.HasPrefix(line, "--")
		})
		if last := lines[len(lines)-1]; !strings.Contains(all.String(), last) {
			t.Errorf("no script has the line %q of %s", last, name)
		}
	}
	gatetest.Equal(t, headgate.Script("none"), "", "an unknown script is")
}

func TestLuaStringsContainNoDashes(t *testing.T) {
	for name, text := range luaFiles(t) {
		for line := range strings.Lines(text) {
			if i := strings.Index(line, "--"); i >= 0 && strings.Count(line[:i], "'")%2 == 1 {
				t.Errorf("%s: a string contains two dashes: %s", name, line)
			}
		}
		if strings.Contains(text, "[[") || strings.Contains(text, "--[") {
			t.Errorf("%s: long strings and comments are not supported by the other tests", name)
		}
	}
}

// tostring and ".." print 14 digits of a number on Redis, and a time has 16. %d may print only 32
// bits, so it prints a time in two pieces. miniredis prints all digits.
func TestLuaPrintsNoNumbers(t *testing.T) {
	joined := regexp.MustCompile(`\b(added|gone|head|label|lead_text|prefix|stamp|stored|tail|text) \.\. |begun \.\. format\(''[^.]*|\.\. (lasts|past|tail)\b`) // these are texts
	for name, script := range scripts {
		for line := range strings.Lines(code(script)) {
			if strings.Contains(joined.ReplaceAllString(line, ""), "..") || strings.Contains(line, "tostring") || strings.Contains(line, "%d") {
				t.Errorf("%s: %s", name, line)
			}
		}
		for _, format := range regexp.MustCompile(`\bformat\(('[^']*')`).FindAllStringSubmatch(luaComment.ReplaceAllString(script, ""), -1) {
			// A number for one %d must be small. The tests against the model check that.
			if strings.Contains(strings.NewReplacer("%09d%07d", "", "%d%07d", "", "%.0f", "", "%016d", "", "%d", "").Replace(format[1]), "%") {
				t.Errorf("%s: format %s", name, format[1])
			}
		}
	}
}

// On a cluster a script may touch only the keys in KEYS.
func TestLuaTouchesOnlyItsKeys(t *testing.T) {
	key := regexp.MustCompile(`^KEYS\[\w+\]$`)
	call := regexp.MustCompile(`redis\.(p?call)\(('[A-Z]+')?,? *([^,)]*)`)
	for name, script := range scripts {
		text := luaComment.ReplaceAllString(script, "")
		calls := call.FindAllStringSubmatch(text, -1)
		if len(calls) != strings.Count(text, "redis.") || len(calls) < 3 && name == "decide" {
			t.Errorf("%s: the test understands %d calls of %d", name, len(calls), strings.Count(text, "redis."))
		}
		for _, c := range calls {
			switch {
			case c[1] == "pcall" && c[2] == "'MGET'" && c[3] == "unpack(KEYS":
				// If the user may not use MGET, the script reads the keys one by one.
			case c[1] == "pcall" && (c[2] == "'SETRANGE'" || c[2] == "'PTTL'") && key.MatchString(c[3]):
			case c[1] != "call", c[2] == "":
				t.Errorf("%s: %s", name, c[0])
			case c[2] == "'TIME'" && c[3] == "":
			case !key.MatchString(c[3]):
				t.Errorf("%s: %s", name, c[0])
			}
		}
		want := 1
		if name == injectedDecide {
			want = 0
		}
		gatetest.Equal(t, strings.Count(text, "'TIME'"), want, "%s reads the clock‡times", name)
	}
}

// Servers that are not Redis lack some of these, and Redis itself has dropped others.
func TestLuaUsesWhatEveryServerHas(t *testing.T) {
	rare := regexp.MustCompile(`replicate_commands|set_repl|setresp|breakpoint|redis\.(log|debug)|loadstring|` +
		`setfenv|getfenv|table\.getn|math\.pow|\b(cjson|cmsgpack|struct|bit)\.`)
	for name, text := range luaFiles(t) {
		gatetest.Equal(t, rare.FindString(code(text)), "", "%s uses", name)
	}
}

// The test writes ARGV by hand, as an operator would.
func TestScriptsFollowTheirContract(t *testing.T) {
	t.Parallel()
	const now = int64(1_763_700_000_123_456)
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client, ctx := s.Client(t), t.Context()
		key, other := s.Prefix+":{a}:p", s.Prefix+":{a}:q"
		for _, name := range []string{"decide", injectedDecide} {
			script := scripts[name]
			t.Run(name, func(t *testing.T) {
				gatetest.NoError(t, client.Del(ctx, key, other).Err())
				sha := gatetest.Must(client.ScriptLoad(ctx, script).Result())(t)
				run := func(requests ...any) []int64 {
					t.Helper()
					// Both limits are one in 10 s, with bursts of 10 and 1.
					args := append([]any{
						21, 0, 0, 1, "token_bucket", 0, 1, 100_000_000, 0, 0, 27, "label1",
						"token_bucket", 0, 3, 10_000_000, 2, 0, 24, "label2",
					}, requests...)
					if name == injectedDecide {
						args = append(args, now)
					}
					return gatetest.Must(client.EvalSha(ctx, sha, []string{key, other}, args...).Int64Slice())(t)
				}
				first := run("decide", 1, 2, 1, 1, 5, 40_000_000, 0, 2, 13, 10_000_000, 1)
				if len(first) != 7 || first[0] != 0 || first[1] != 0 || first[3] < now || first[6] < now {
					t.Fatalf("first: %v", first)
				}
				// A later request in a call sees the charges of an earlier one.
				second := run(
					"decide", 1, 2, 1, 1, 5, 40_000_000, 0, 2, 13, 10_000_000, 1,
					"atmost", 1, 1, 1, 9, 1, 5, 10_000_000, 0,
					"peek", 1, 1, 0, 2, 13, 0, 0,
				)
				if len(second) != 15 || second[0] != 2 || second[3] != 0 || second[6] != 0 || second[7] < 6 || second[11] != 0 {
					t.Fatalf("second: %v", second)
				}
				if given := run("give", 1, 1, 0, 1, 5, 30_000_000, 0, second[10]); len(given) != 1 || given[0] != 1 {
					t.Errorf("give: %v", given)
				}
				if name == injectedDecide {
					want := []int64{2, 40_000_000, 0, 0, 10_000_000, 1, 0, 6, 40_000_000, 0, now + 1}
					if !slices.Equal(second[:11], want) {
						t.Errorf("second: %v, want %v", second, want)
					}
					if peeked := run("peek", 1, 1, 0, 1, 5, 0, 0); peeked[1] != 70_000_000 {
						t.Errorf("after the refund: %v", peeked)
					}
				}
				for _, k := range []string{key, other} {
					if ttl := client.PTTL(ctx, k).Val(); ttl <= 0 {
						t.Errorf("%s has PTTL %v", k, ttl)
					}
				}
			})
		}
	})
}

// The test writes ARGV by hand, as an operator would.
func TestStraightScriptsFollowTheirContract(t *testing.T) {
	t.Parallel()
	const now = int64(1_763_700_000_123_456)
	const window, minute = now - now%60_000_000, int64(60_000_000)
	for name, test := range map[string]struct {
		script string
		keys   int
		args   []any
		want   []int64
	}{
		"a request": {"window", 1, []any{1, 10, minute}, []int64{0, 0, window + minute - now, 0, window + minute, window + 1}},
		"two, four of three units each": {"window", 2, []any{-2, 3, 4, 10, -minute}, []int64{
			3, 0, minute, 0, now + minute, now + 1, 3, 0, minute, 0, now + minute, now + 1}},
		"a peek": {"window", 1, []any{-1, 11, 0, 10, minute}, []int64{1, 0, window + minute - now, 0, window + minute, 0}},
		"two runs": {"sliding_window", 2, []any{1, 10, 60, 1_000_000, minute, -1, 11, 1, 10, 60, 1_000_000, minute},
			[]int64{0, 0, 0, 0, now + 1, 1, 0, 0, 0, 0}},
		"a period":                 {"window", 1, []any{1, 10, 0, now, now + 5, now + 9}, []int64{0, 0, 5, 0, now + 5, now + 1}},
		"a period that has passed": {"window", 1, []any{1, 10, 0, now - 9, now, now + 9}, []int64{-1, now}},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				client := s.Client(t)
				keys := []string{s.Prefix + ":{a}:p", s.Prefix + ":{a}:q"}[:test.keys]
				script := redis.NewScript(redistest.Script(test.script))
				got, err := script.Run(t.Context(), client, keys, append(test.args, now)...).Int64Slice()
				if err != nil || !slices.Equal(got, test.want) {
					t.Errorf("got %v, %v, want %v", got, err, test.want)
				}
			})
		})
	}
}
