package llm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/watch"
	"github.com/headgate/headgate/llm/internal/pricefile"
)

// PricesConfig configures Prices.
type PricesConfig struct {
	// Paths are files of prices: LiteLLM's model_prices_and_context_window.json, genai-prices'
	// data.json or models.dev's api.json. Each has at most 16 MiB. At least one is required. They are
	// read again when they change.
	Paths []string
	// Providers are those whose models are read, by the names that the files give them, such as
	// anthropic and openai. A name that several of them use is of the first. Nil reads all models. A
	// name that several of them use for different prices is then unknown; only provider/name is.
	Providers []string
	// Observe receives a *PricesEvent when the files were read again. It must be safe for concurrent
	// use. Nil observes nothing.
	Observe func(context.Context, core.Event)
}

// PricesEvent is that price files were read again. It is valid until Observe returns.
type PricesEvent struct {
	// Err is why a file was not read. The prices before then still hold.
	Err error
	// Unread is what Prices.Unread returns now.
	Unread []string
}

// EventName returns "prices".
func (*PricesEvent) EventName() string { return "prices" }

// Prices are the models of price files, for Config.Prices. LoadPrices makes them; the zero value is
// of no use. They are safe for concurrent use.
type Prices struct {
	cfg     PricesConfig
	current atomic.Pointer[priceList]

	loading sync.Mutex // held while files are read
	files   []watch.File
	read    []pricefile.File // of each file
	trouble string           // the error that was last told

	ctx     context.Context // of the goroutine
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// LoadPrices reads price files. It returns an error if one cannot be read, or if they have no model.
// What it does not understand of a model is in Unread. Close ends its goroutine.
func LoadPrices(cfg PricesConfig) (*Prices, error) {
	if len(cfg.Paths) == 0 {
		return nil, errors.New("llm: PricesConfig.Paths is empty")
	}
	p := &Prices{cfg: cfg, read: make([]pricefile.File, len(cfg.Paths))}
	p.cfg.Providers = slices.Clone(cfg.Providers)
	for _, path := range cfg.Paths {
		p.files = append(p.files, watch.File{Path: path, Max: pricefile.Max})
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if _, err := p.load(true); err != nil {
		p.cancel()
		return nil, err
	}
	p.running.Go(func() {
		ticker := time.NewTicker(watch.Interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				p.look()
			case <-p.ctx.Done():
				return
			}
		}
	})
	return p, nil
}

// Close ends the goroutine that looks at the files, and waits for it. It does not wait for a read that
// hangs, as on a network file system whose server is gone: the goroutine of that read ends with it. The
// prices stay. Later calls do nothing.
func (p *Prices) Close() {
	p.cancel()
	p.running.Wait()
}

// Model returns the model of a name.
func (p *Prices) Model(name string) (Model, bool) {
	if m := p.current.Load().find(name); m != nil {
		return Model{Tariff: m.Tariff.clone(), MaxOutput: m.MaxOutput}, true
	}
	return Model{}, false
}

// Unread returns what was not understood of the files, sorted: the model, the field and why. A model
// whose prices of tokens were not all understood is left out.
func (p *Prices) Unread() []string { return slices.Clone(p.current.Load().unread) }

// Reload reads the files now. After an error the prices before still hold. Prices of genai-prices
// that begin at a date hold from the first Reload after it, or from the next change of a file. After
// Close it returns an error.
func (p *Prices) Reload() error {
	p.loading.Lock()
	defer p.loading.Unlock()
	_, err := p.load(true)
	if p.ctx.Err() != nil {
		return errors.New("llm: prices: closed")
	}
	p.tell(context.Background(), err)
	return err
}

// load reads all files, or those that have changed, and makes them hold. A file that is bad stays as
// it was, or keeps all from holding. It reports whether there was a file to read. The caller holds
// loading, if there is another one.
func (p *Prices) load(all bool) (changed bool, err error) {
	read := slices.Clone(p.read)
	var errs []error
	for i := range p.files {
		text, stands, err := p.text(i, all)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("llm: prices: %w", err))
		case stands:
			changed = true
			if file, err := pricefile.Parse(text, time.Now()); err == nil {
				read[i] = file
			} else {
				errs = append(errs, fmt.Errorf("llm: prices: %s: %w", p.files[i].Path, err))
			}
		}
	}
	if changed && p.ctx.Err() == nil && (errs == nil || !all) {
		errs = append(errs, p.hold(read))
	}
	return changed, errors.Join(errs...)
}

// text returns the text of a file, if it is to be read.
func (p *Prices) text(i int, all bool) (text []byte, stands bool, err error) {
	if all {
		text, err = p.files[i].Read(p.ctx)
		return text, true, err
	}
	return p.files[i].Stands(p.ctx)
}

// hold makes what was read hold, if it has models.
func (p *Prices) hold(read []pricefile.File) error {
	list := newPriceList(read, p.cfg.Providers)
	if len(list.models) == 0 {
		return fmt.Errorf("llm: prices: %d files have no model of %q", len(read), p.cfg.Providers)
	}
	p.read = read
	p.current.Store(list)
	return nil
}

// look reads the files that have changed.
func (p *Prices) look() {
	p.loading.Lock()
	defer p.loading.Unlock()
	changed, err := p.load(false)
	if p.ctx.Err() != nil {
		return
	}
	// An error that stays is told once.
	if changed || err != nil && err.Error() != p.trouble {
		p.tell(p.ctx, err)
	}
	p.trouble = ""
	if err != nil {
		p.trouble = err.Error()
	}
}

func (p *Prices) tell(ctx context.Context, err error) {
	if p.cfg.Observe != nil {
		p.cfg.Observe(ctx, &PricesEvent{Err: err, Unread: p.Unread()})
	}
}
