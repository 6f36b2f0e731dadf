package nethttp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/headgate/headgate/core"
)

// errBody is a body that could not be read.
var errBody = errors.New("nethttp: the body breaks off")

// waits says whether a request may have to wait.
func (a *Admission) waits(charges []core.Charge) bool {
	cfg := &a.guard.cfg
	return cfg.MaxDelay > 0 && len(charges) > 0 || a.capped && cfg.Concurrency.MaxWait > 0
}

// body is one of which the beginning was read already.
type body struct {
	io.Reader
	io.Closer
}

// buffer reads up to so many bytes of a request's body ahead.
func buffer(r *http.Request, most int64) error {
	if most == 0 || r.Body == nil || r.Body == http.NoBody || r.ContentLength > most {
		return nil
	}
	read, err := io.ReadAll(io.LimitReader(r.Body, most))
	if err != nil {
		return fmt.Errorf("%w: %w", errBody, err)
	}
	var end [1]byte // what is whole ends here, and the server knows that when it is read
	n, err := io.ReadFull(r.Body, end[:])
	if err != nil && err != io.EOF {
		return fmt.Errorf("%w: %w", errBody, err)
	}
	r.Body = body{io.MultiReader(bytes.NewReader(append(read, end[:n]...)), r.Body), r.Body}
	return nil
}
