package llm_test

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// byPiece is a model whose tokens are free and whose pieces cost 60,000 micro-dollars each, and a
// tenth of one a millisecond.
var byPiece = llm.Tariff{Price: free.Price, Units: map[string]int64{
	"rerank_search": 60_000_000, "web_search": 60_000_000, "file_search": 60_000_000, "container": 60_000_000,
	"image_generation": 60_000_000, "maps_prompt": 60_000_000, "image": 60_000_000, "audio_ms": 100,
}}

// form returns a form with a file of a size, and its type.
func form(t *testing.T, size int, fields ...string) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := 0; i < len(fields); i += 2 {
		_ = w.WriteField(fields[i], fields[i+1])
	}
	part, err := w.CreateFormFile("file", "sound.mp3")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = part.Write(make([]byte, size))
	_ = w.Close()
	return b.String(), w.FormDataContentType()
}

// What a request may be billed for by the piece is held while it runs: a second one finds the budget
// taken.
func TestPiecesAreHeld(t *testing.T) {
	sound, sounds := form(t, 2_400_000, "model", "m")
	const gemini = "/v1beta/models/m:generateContent"
	for _, c := range []struct{ name, path, body, contentType string }{
		{"rerank", "/v2/rerank", `{"model":"m","query":"q","documents":["a"]}`, ""},
		{"image", "/v1/images/generations", `{"model":"m","prompt":"p"}`, ""},
		{"sound", "/v1/audio/transcriptions", sound, sounds},
		{"search of a chat", chatPath, `{"model":"m","web_search_options":{}}`, ""},
		{"search of OpenRouter's", chatPath, `{"model":"m","plugins":[{"id":"web"}]}`, ""},
		{"search of Anthropic's", messagesPath, `{"model":"m","max_tokens":9,"tools":[{"type":"web_search_20250305"}]}`, ""},
		{"search of files", responsesPath, `{"model":"m","tools":[{"type":"file_search"}]}`, ""},
		{"shell", responsesPath, `{"model":"m","tools":[{"type":"shell"}]}`, ""},
		{"drawing", responsesPath, `{"model":"m","tools":[{"type":"function"},{"type":"image_generation"}]}`, ""},
		{"search of Gemini's", gemini, `{"tools":[{"googleSearch":{}}]}`, ""},
		{"maps", gemini, `{"tools":[{"google_maps":{}}]}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, core.UnitMicroDollars, 100_000, func(cfg *llm.Config) {
				cfg.Models = map[string]llm.Model{"m": {Tariff: byPiece}}
			})
			begun, goOn := make(chan struct{}), make(chan struct{})
			r.answer = func(w http.ResponseWriter, _ *http.Request) {
				close(begun)
				<-goOn
				w.WriteHeader(http.StatusInternalServerError)
			}
			contentType := c.contentType
			if contentType == "" {
				contentType = "application/json"
			}
			done := make(chan *http.Response)
			go func() { done <- r.post(c.path, c.body, "Content-Type", contentType) }()
			<-begun
			if used := r.used(); used < 60_000 || used > 60_100 {
				t.Errorf("%d micro-dollars are held", used)
			}
			if second := r.post(c.path, c.body, "Content-Type", contentType); second.StatusCode != http.StatusTooManyRequests {
				t.Errorf("the second one was answered %d", second.StatusCode)
			}
			close(goOn)
			(<-done).Body.Close()
			if report := <-r.reports; report.Outcome != llm.OutcomeFailed || r.used() != 0 {
				t.Errorf("%+v, %d used", report, r.used())
			}
		})
	}
}

// A tool that the request offers and the response does not use costs nothing, and neither does one
// that the model has no price for.
func TestPiecesThatAreNotUsedGoBack(t *testing.T) {
	for _, c := range []struct {
		name   string
		tariff llm.Tariff
		held   int64
	}{{"priced", byPiece, 60_000}, {"not priced", free, 0}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, core.UnitMicroDollars, 1e9, func(cfg *llm.Config) {
				cfg.Models = map[string]llm.Model{"m": {Tariff: c.tariff}}
			})
			held := int64(-1)
			r.answer = func(w http.ResponseWriter, q *http.Request) {
				held = r.used()
				chat(3, 2)(w, q)
			}
			read(t, r.post(chatPath, `{"model":"m","web_search_options":{}}`))
			report := <-r.reports
			if held != c.held || report.Cost != 0 || len(report.Unknown) > 0 || r.used() != 0 {
				t.Errorf("%d held, %+v", held, report)
			}
		})
	}
}

// An answer that states nothing of what its model is billed by costs by the estimate, and is
// reported, whatever format its client picks.
func TestAnswersWithoutUnitsCostByTheEstimate(t *testing.T) {
	sound, sounds := form(t, 2_400_000, "model", "m", "response_format", "srt")
	short, shorts := form(t, 10, "model", "m", "response_format", "text")
	const rerank, images = `{"model":"m","query":"q","documents":["a"]}`, `{"model":"m","prompt":"p","n":2}`
	for _, c := range []struct {
		name, path, ask, contentType, answerType, answer string
		outcome                                          llm.Outcome
		want                                             int64
		unknown                                          string
	}{
		{"subtitles", "/v1/audio/transcriptions", sound, sounds, "text/plain", "1\n00:00:00,000 --> 00:00:04,000\nHello\n",
			llm.OutcomeUnreported, 60_000, "estimate of audio_ms"},
		{"a short text", "/v1/audio/transcriptions", short, shorts, "text/plain", "Hello\n",
			llm.OutcomeUnreported, 1000, "estimate of audio_ms"},
		{"a text in JSON", "/v1/audio/transcriptions", sound, sounds, "application/json", `{"text":"Hello"}`,
			llm.OutcomeUnreported, 60_000, "estimate of audio_ms"},
		{"a transcription that states its seconds", "/v1/audio/transcriptions", sound, sounds, "application/json",
			`{"text":"Hello","usage":{"type":"duration","seconds":60}}`, llm.OutcomeReported, 6000, ""},
		{"a rerank that states tokens alone", "/v1/rerank", rerank, "application/json", "application/json",
			`{"results":[],"usage":{"total_tokens":9}}`, llm.OutcomeReported, 60_000, "estimate of rerank_search"},
		{"a rerank that states nothing", "/v1/rerank", rerank, "application/json", "application/json",
			`{"results":[]}`, llm.OutcomeUnreported, 60_000, "estimate of rerank_search"},
		{"a rerank", "/v1/rerank", rerank, "application/json", "application/json",
			`{"results":[],"meta":{"billed_units":{"search_units":2}}}`, llm.OutcomeReported, 120_000, ""},
		{"images", "/v1/images/generations", images, "application/json", "application/json",
			`{"data":[{"b64_json":"aGk="},{"b64_json":"aGk="}]}`, llm.OutcomeUnreported, 120_000, "estimate of image"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, core.UnitMicroDollars, 1e9, func(cfg *llm.Config) {
				cfg.Models = map[string]llm.Model{"m": {Tariff: byPiece}}
			})
			r.answer = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.answerType)
				_, _ = io.WriteString(w, c.answer)
			}
			read(t, r.post(c.path, c.ask, "Content-Type", c.contentType))
			report := <-r.reports
			if report.Outcome != c.outcome || report.Cost < c.want || report.Cost > c.want+c.want/500 || r.used() != report.Cost {
				t.Errorf("%v, %d micro-dollars, want %d: %+v", report.Outcome, report.Cost, c.want, report)
			}
			if c.unknown == "" && len(report.Unknown) > 0 || c.unknown != "" && !slices.Contains(report.Unknown, c.unknown) {
				t.Errorf("unknown %q", report.Unknown)
			}
		})
	}
}

// A stream that breaks off before it has stated its searches counts those that it may have made.
func TestPiecesOfACutStream(t *testing.T) {
	r := newRig(t, core.UnitMicroDollars, 1e9, func(cfg *llm.Config) {
		cfg.Models = map[string]llm.Model{"m": {Tariff: byPiece}}
	})
	r.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, strings.Repeat(word, 3))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	response := r.post(chatPath, `{"model":"m","stream":true,"web_search_options":{}}`)
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	if report := <-r.reports; report.Outcome != llm.OutcomeCut || report.Cost != 60_000 || r.used() != 60_000 {
		t.Errorf("%+v", report)
	}
}
