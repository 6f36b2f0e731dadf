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
	// name that several of them use for different prices is then that of the model that the file
	// gives no other one, or unknown; provider/name is known.
	Providers []string
	// Observe receives a *PricesEvent when files were read again. It must be safe for concurrent
	// use, and must not call Prices.Close, which waits for it. Nil observes nothing.
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
	files   []priceFile
	looking sync.Mutex // held by look from the end of its reads on, for Close
	trouble string     // the error that was last told
	cancel  context.CancelFunc
}

// priceFile is a file, and what was last read of it.
type priceFile struct {
	file watch.File
	read pricefile.File
}

// take reads the text of the file. What was read before stays if it is none of prices.
func (f *priceFile) take(text []byte) error {
	read, err := pricefile.Parse(text, time.Now())
	if err != nil {
		return fmt.Errorf("%s: %w", f.file.Path, err)
	}
	f.read = read
	return nil
}

// LoadPrices reads price files. It returns an error if one cannot be read, or if they have no model.
// What it does not understand of a model is in Unread. Close ends its goroutine.
func LoadPrices(cfg PricesConfig) (*Prices, error) {
	if len(cfg.Paths) == 0 {
		return nil, errors.New("llm: PricesConfig.Paths is empty")
	}
	p := &Prices{cfg: cfg}
	p.cfg.Providers = slices.Clone(cfg.Providers)
	for _, path := range cfg.Paths {
		f := priceFile{file: watch.File{Path: path, Max: pricefile.Max}}
		text, err := f.file.Read()
		if err == nil {
			err = f.take(text)
		}
		if err != nil {
			return nil, fmt.Errorf("llm: prices: %w", err)
		}
		p.files = append(p.files, f)
	}
	if err := p.hold(); err != nil {
		return nil, fmt.Errorf("llm: prices: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go watch.Every(ctx, watch.Interval, p.look)
	return p, nil
}

// Close ends the goroutine that looks at the files. It does not wait for a read, which may hang, as on a
// network file system whose server is gone. The prices stay, and Observe is not called any more. Later
// calls do nothing.
func (p *Prices) Close() {
	p.cancel()
	p.looking.Lock() // the last look is over, unless it still reads
	defer p.looking.Unlock()
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

// hold makes what was read hold, if it has models.
func (p *Prices) hold() error {
	list := newPriceList(p.files, p.cfg.Providers)
	if len(list.models) == 0 {
		return fmt.Errorf("%d files have no model of %q", len(p.files), p.cfg.Providers)
	}
	p.current.Store(list)
	return nil
}

// look reads the files that have changed, and makes them hold. One that is bad stays as it was. An
// error that stays is told once.
func (p *Prices) look(ctx context.Context) {
	changed := false
	var errs []error
	for i := range p.files {
		f := &p.files[i]
		text, stands, err := f.file.Stands()
		if stands {
			changed, err = true, f.take(text)
		}
		errs = append(errs, err)
	}
	p.looking.Lock()
	defer p.looking.Unlock()
	if ctx.Err() != nil {
		return
	}
	if changed {
		errs = append(errs, p.hold())
	}
	err := errors.Join(errs...)
	if err != nil {
		err = fmt.Errorf("llm: prices: %w", err)
	}
	trouble := fmt.Sprint(err)
	if p.cfg.Observe != nil && (changed || err != nil && trouble != p.trouble) {
		p.cfg.Observe(ctx, &PricesEvent{Err: err, Unread: p.Unread()})
	}
	p.trouble = trouble
}
