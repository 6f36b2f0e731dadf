// Package frameworks puts a Guard into Fiber, huma and Connect, as docs/reference/frameworks.md shows.
package frameworks

import (
	"errors"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"

	"github.com/headgate/headgate/adapters/nethttp"
)

// Fiber applies a Guard to the handlers after it.
func Fiber(g nethttp.Admitter) fiber.Handler {
	if err := g.Check(); err != nil {
		panic(err)
	}
	return func(c fiber.Ctx) (err error) {
		r, err := adaptor.ConvertRequest(c, true)
		if err != nil {
			return err
		}
		r = r.WithContext(c.Context()) // values that authentication has stored
		r.Pattern = c.Route().Path
		for _, name := range c.Route().Params {
			r.SetPathValue(name, strings.Clone(c.Params(name))) // Fiber uses its strings again
		}
		x := g.Admit(r)
		status := http.StatusInternalServerError // if a handler panics
		defer func() { x.Finish(r, status) }()
		headers := make(http.Header)
		x.WriteHeaders(headers)
		for name, values := range headers {
			for _, value := range values {
				c.Response().Header.Add(name, value)
			}
		}
		if !x.Allowed() {
			status = x.Status()
			return adaptor.HTTPHandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				g.Refuse(w, r, &x.Admission)
			})(c)
		}
		c.SetContext(x.WithContext(c.Context()))
		err = c.Next()
		status = c.Response().StatusCode()
		var failed *fiber.Error
		if errors.As(err, &failed) {
			status = failed.Code
		} else if err != nil {
			status = http.StatusInternalServerError
		}
		return err
	}
}
