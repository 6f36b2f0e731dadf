package frameworks

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/gofiber/fiber/v3"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
)

// newGuard limits each item to 2 requests that do not fail, one at a time.
func newGuard(t *testing.T) *nethttp.Guard {
	t.Helper()
	gate := core.Must(core.NewMemory(core.Config{}))
	policy := core.Must(core.NewPolicy(core.PolicyConfig{Name: "items", Algorithm: core.PerHour(2)}))
	running := core.Must(semaphore.New(gate, semaphore.Config{Name: "running"}))
	byItem := keyfunc.Must(keyfunc.Join(keyfunc.Route(), keyfunc.Must(keyfunc.PathValue("id"))))
	guard := core.Must(nethttp.NewGuard(nethttp.Config{
		Gate:  gate,
		Rules: []nethttp.Rule{{Policy: policy, Key: byItem, Settle: nethttp.RefundServerErrors}},
		Slot:  &nethttp.Slot{Semaphore: running, Caps: []nethttp.Cap{{Name: "running", Key: byItem, Limit: 1}}},
	}))
	return guard
}

// checkItems asks for an item that fails once, and then succeeds; within it asks for itself again.
func checkItems(t *testing.T, get func(path string) *http.Response) {
	t.Helper()
	for i, want := range []struct {
		path   string
		status int
		body   string
	}{
		{"/items/a?fail=1", 500, ""},
		{"/items/a", 200, "item a, inside 429"},
		{"/items/a", 200, "item a, inside 429"},
		{"/items/a", 429, `"violated-policies":["items"]`},
		{"/items/b", 200, "item b, inside 429"},
	} {
		response := get(want.path)
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != want.status || !strings.Contains(string(body), want.body) {
			t.Errorf("request %d: status %d, %s", i, response.StatusCode, body)
		}
		if lines := response.Header.Values("RateLimit"); len(lines) != 1 || !strings.Contains(lines[0], `"items"`) {
			t.Errorf("request %d: RateLimit %q", i, lines)
		}
		refused := want.status == 429
		if (response.Header.Get("Retry-After") != "") != refused {
			t.Errorf("request %d: Retry-After %q", i, response.Header.Get("Retry-After"))
		}
		if refused && response.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("request %d: Content-Type %q", i, response.Header.Get("Content-Type"))
		}
	}
}

func TestFiber(t *testing.T) {
	app := fiber.New()
	get := func(path string) *http.Response {
		response, err := app.Test(httptest.NewRequest(http.MethodGet, path, nil), fiber.TestConfig{})
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	app.Get("/items/:id", Fiber(newGuard(t)), func(c fiber.Ctx) error {
		if nethttp.AdmissionFromContext(c.Context()) == nil {
			return errors.New("no admission")
		}
		if c.Query("fail") != "" {
			return fiber.ErrInternalServerError
		}
		id := strings.Clone(c.Params("id"))
		inside := get("/items/" + id)
		return c.SendString("item " + id + ", inside " + inside.Status[:3])
	})
	checkItems(t, get)
}

func TestHuma(t *testing.T) {
	mux := http.NewServeMux()
	get := func(path string) *http.Response {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Result()
	}
	api := humago.New(mux, huma.DefaultConfig("Items", "1.0.0"))
	type input struct {
		ID   string `path:"id"`
		Fail bool   `query:"fail"`
	}
	type output struct{ Body string }
	huma.Register(api, huma.Operation{
		OperationID: "get-item", Method: http.MethodGet, Path: "/items/{id}",
		Middlewares: huma.Middlewares{Huma(newGuard(t))},
	}, func(ctx context.Context, in *input) (*output, error) {
		if nethttp.AdmissionFromContext(ctx) == nil {
			return nil, errors.New("no admission")
		}
		if in.Fail {
			return nil, errors.New("failed")
		}
		return &output{Body: "item " + in.ID + ", inside " + get("/items/" + in.ID).Status[:3]}, nil
	})
	checkItems(t, get)
}
