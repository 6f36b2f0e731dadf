package inspect_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/plans"
)

func TestParseKey(t *testing.T) {
	long := strings.Repeat("x", 80)
	for text, parts := range map[string][]string{
		"acme":                           {"acme"},
		" acme/bob ":                     {"acme", "bob"},
		"acme/a%2Fb":                     {"acme", "a/b"},
		"acme/100%25":                    {"acme", "100%"},
		"192.0.2.7":                      {"192.0.2.7"},
		"2001:db8::/64":                  {"2001:db8::/64"},
		"acme/2001:db8::%2F64":           {"acme", "2001:db8::/64"},
		"{acme}":                         {"acme"},
		"{acme}:bob:x":                   {"acme", "bob", "x"},
		"{acme}:2001%3Adb8%3A%3A%2F64":   {"acme", "2001:db8::/64"},
		"<script>alert(1)<%2Fscript>":    {"<script>alert(1)</script>"},
		"%7Bacme}":                       {"{acme}"},
		"acme/" + long:                   {"acme", long},
		"{192.0.2.7}:24":                 {"192.0.2.7", "24"},
		"{2001%3Adb8%3A%3A1}:64":         {"2001:db8::1", "64"},
		"a%0Db/%0A/%7F":                  {"a\rb", "\n", "\x7f"},
		"%FF":                            {"\xff"},
		"user@example.com/Zürich/\u202e": {"user@example.com", "Zürich", "\u202e"},
	} {
		want := newKey(t, parts[0], parts[1:]...)
		got := gatetest.Must(inspect.ParseKey(text))(t)
		gatetest.Equal(t, got, want, "%q", text)
		again := gatetest.Must(inspect.ParseKey(inspect.FormatKey(want)))(t)
		gatetest.Equal(t, again.String(), want.String(), "%q is written as %q", text, inspect.FormatKey(want))
		gatetest.Equal(t, gatetest.Must(inspect.ParseKey(want.String()))(t).String(), want.String(), "%q", want)
	}
	for _, text := range []string{
		"", " ", "/", "acme/", "/bob", "acme//bob", "acme/%zz", "{acme", "{acme}bob", "{acme}:", "{}", "{a}:%41",
		"{acme}:~short", "{acme}:b b", "{a}:1:2:3:4:5:6:7:8", "a/1/2/3/4/5/6/7/8", "{a}:{b}",
	} {
		if key, err := inspect.ParseKey(text); !errors.Is(err, core.ErrKey) {
			t.Errorf("%q: %v, %v", text, key, err)
		}
	}
}

// A key reads back from a form and from a terminal, which change control characters and what is not
// UTF-8.
func TestFormattedKeyIsText(t *testing.T) {
	for _, part := range []string{"a\rb", "a\nb", "\x1b[2J", "\xff", "\u0085x"} {
		text := inspect.FormatKey(newKey(t, "acme", part))
		if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			t.Errorf("%q is written as %q", part, text)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, text := range []string{"acme/bob", "{acme}:bob", "%7Ba/b%2Fc", "2001:db8::/64", " x /y ", "~", "{~aaaaaaaaaaaaaaaaaaaaaa}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := inspect.ParseKey(text)
		if err != nil {
			return
		}
		again := gatetest.Must(inspect.ParseKey(inspect.FormatKey(key)))(t)
		gatetest.Equal(t, again.String(), key.String(), "%q: %q is written as %q", text, key, inspect.FormatKey(key))
		if parts := key.Parts(); parts != nil {
			if same := newKey(t, parts[0], parts[1:]...); same.String() != key.String() || slices.Contains(parts, "") {
				t.Errorf("%q has the parts %q", key, parts)
			}
		}
	})
}

func TestLimitTextIsThatOfAFile(t *testing.T) {
	berlin := gatetest.Must(time.LoadLocation("Europe/Berlin"))(t)
	for _, tt := range []struct {
		limit       core.Algorithm
		words, text string
	}{
		{core.PerMinute(1000), "1,000 per 1 min", `{burst: 1000, per: "1m0s", rate: 1000}`},
		{core.TokenBucket{Rate: 3, Per: 90 * time.Second, Burst: 7}, "3 per 1 min 30 s, at most 7 at once", `{burst: 7, per: "1m30s", rate: 3}`},
		{core.TokenBucket{Burst: 7}, "7, never refilled", "{burst: 7, rate: 0}"},
		{core.TokenBucket{Burst: 7, Per: time.Hour}, "7, full again after 1 h without a charge", `{burst: 7, per: "1h0m0s", rate: 0}`},
		{core.LeakyBucket{Rate: 10, Per: time.Hour, Capacity: 50}, "10 per 1 h, 50 queue", `{capacity: 50, leak: 10, per: "1h0m0s"}`},
		{core.FixedWindow{Limit: 5, Window: time.Minute}, "5 in each 1 min", `{fixed_window: "1m0s", from_first: false, limit: 5}`},
		{core.FixedWindow{Limit: 5, Window: time.Minute, FromFirst: true}, "5 in 1 min from the first", `{fixed_window: "1m0s", from_first: true, limit: 5}`},
		{core.AnyMinute(5), "5 in any 1 min", `{buckets: 60, limit: 5, sliding_window: "1m0s"}`},
		{core.SlidingLog{Windows: []core.Window{{Limit: 1, Width: 20 * time.Millisecond}, {Limit: 9, Width: 25 * time.Hour}}},
			"1 in any 20ms, 9 in any 1 d 1 h", `{sliding_log: [{limit: 1, window: "20ms"},{limit: 9, window: "25h0m0s"}]}`},
		{plans.Subscribed{Calendar: core.Calendar{Limit: 5, Every: core.PeriodMonth, In: berlin}}, "5 in each month of the subscription, Europe/Berlin", `{anchor: "subscription", calendar: "month", in: "Europe/Berlin", limit: 5}`},
		{core.Calendar{Limit: 5, Every: core.PeriodMonth, In: time.UTC}, "5 in each month, UTC", `{calendar: "month", in: "UTC", limit: 5}`},
		{core.Calendar{Limit: 5, Every: core.PeriodMonth, In: berlin, Anchor: time.Date(2026, 1, 31, 8, 0, 0, 0, berlin)}, "5 in each month from day 31, 08:00, Europe/Berlin",
			`{anchor: "2026-01-31T08:00:00+01:00", calendar: "month", in: "Europe/Berlin", limit: 5}`},
		{core.Unlimited{}, "unlimited", "unlimited"},
		{core.DenyAll{}, "denies everything", "deny"},
		{core.Block{Strikes: 3, Within: time.Hour, For: 36 * time.Hour}, "3 strikes in 1 h block for 1 d 12 h", ""},
	} {
		if words, text := inspect.Describe(tt.limit), inspect.LimitText(tt.limit); words != tt.words || text != tt.text {
			t.Errorf("%#v is %q, %q", tt.limit, words, text)
		}
		if tt.text == "" {
			continue
		}
		var o plans.Override
		worked(t, o.UnmarshalText([]byte("limits: {api: "+tt.text+"}")))
		got := o.Limits["api"]
		if c, ok := tt.limit.(core.Calendar); ok {
			back, _ := got.(core.Calendar)
			if back.Limit != c.Limit || back.Every != c.Every || back.In.String() != c.In.String() || !back.Anchor.Equal(c.Anchor) {
				t.Errorf("%v is read as %v", tt.text, got)
			}
		} else if !reflect.DeepEqual(got, tt.limit) {
			t.Errorf("%v is read as %v", tt.text, got)
		}
	}
}

func TestWait(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 s", time.Microsecond: "1 s", time.Second: "1 s", 1500 * time.Millisecond: "2 s",
		time.Minute: "1 min", time.Minute + 1: "1 min 1 s", time.Hour: "1 h", time.Hour + 1: "1 h 1 min",
		time.Hour - 1: "1 h", 24*time.Hour - 1: "1 d", 36*time.Hour + 1: "1 d 13 h", 24*time.Hour + 1: "1 d 1 h",
		400 * 24 * time.Hour: "400 d", core.Never: "ever", -5: "0 s",
	} {
		gatetest.Equal(t, inspect.Wait(d), want, "%v is", d)
	}
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000",
	} {
		gatetest.Equal(t, inspect.Number(n), want, "%d is", n)
	}
}
