package nethttp

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/core"
)

// Answers says what a Replay keeps of the answers of handlers, so that it can repeat them. The zero
// value keeps the status, a body of up to 256 KiB and the headers Cache-Control, Content-Disposition,
// Content-Encoding, Content-Language, Content-Location, Content-Range, Content-Type, ETag, Last-Modified,
// Link and Location.
type Answers struct {
	// Headers are kept too. Set-Cookie is kept only if it is named here: a cookie is for the client of
	// the first request.
	Headers []string
	// MaxBytes bounds the body of an answer that is kept, and that of a request with an id, which is
	// compared. A process keeps both in memory while it handles the request. Zero means 256 KiB; the
	// most is 1 MiB, because the answer is recorded within core.Config.Timeout.
	MaxBytes int
	// Keys are AES keys of 16, 24 or 32 bytes. If there are some, the first seals what is kept in
	// Redis by AES-GCM, and each may open it. So put a new key in front, and remove the old one when
	// the window is over. Without keys, Redis has answers in plain text, and a SHA-256 of each body.
	Keys [][]byte
}

const (
	usualBytes = 256 << 10
	mostBytes  = 1 << 20
)

// usualHeaders are those that Answers names.
var usualHeaders = []string{
	"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location",
	"Content-Range", "Content-Type", "Etag", "Last-Modified", "Link", "Location",
}

// keeper keeps answers as Answers says.
type keeper struct {
	headers []string
	most    int
	seals   []cipher.AEAD
}

func newKeeper(cfg Answers, fault faultFunc) *keeper {
	k := &keeper{most: cfg.MaxBytes, headers: append(slices.Clone(usualHeaders), contentLength)}
	for _, name := range cfg.Headers {
		k.headers = append(k.headers, http.CanonicalHeaderKey(name))
	}
	fault.when(k.most < 0 || k.most > mostBytes,
		"Answers.MaxBytes is %d: it must be between 0 and %d", k.most, mostBytes)
	if k.most == 0 {
		k.most = usualBytes
	}
	for i, key := range cfg.Keys {
		block, err := aes.NewCipher(key)
		if err != nil {
			fault("Answers.Keys[%d] has %d bytes: it must have 16, 24 or 32", i, len(key))
			continue
		}
		seal, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			fault("Answers.Keys[%d]: %w", i, err)
			continue
		}
		k.seals = append(k.seals, seal)
	}
	return k
}

// tooLong stands for the fingerprint of a request whose body is too long.
const tooLong = "-"

// fingerprint tells requests with one id apart, by their method, host, target and body. It reads the body and
// puts it back.
func (k *keeper) fingerprint(r *http.Request) (string, error) {
	sum := sha256.New()
	// The target is that of the client: a router may have stripped or unescaped the path.
	host, target := (&url.URL{Host: r.Host}).Hostname(), cmp.Or(r.RequestURI, r.URL.RequestURI())
	fmt.Fprintf(sum, "%q %q %q\n", r.Method, host, target)
	if hasBody(r) {
		if r.ContentLength > int64(k.most) {
			return tooLong, nil
		}
		head, err := readAhead(r, int64(k.most)+1)
		if err != nil {
			return "", err
		}
		if len(head) > k.most {
			return tooLong, nil
		}
		sum.Write(head)
	}
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)), nil
}

// loss is why an answer is not repeated, as the header Idempotency-Not-Replayed says it.
type loss string

const (
	lostTooLarge   loss = "too-large"
	lostStream     loss = "stream"
	lostError      loss = "server-error"
	lostIncomplete loss = "incomplete"
	lostUnknown    loss = "unknown"
	lostSealed     loss = "sealed"
)

// lossDetails say each loss in a sentence.
var lossDetails = map[loss]string{
	lostTooLarge:   "Its answer was not kept, because one of the bodies is too large.",
	lostStream:     "Its answer was not kept, because it was a stream.",
	lostError:      "Its answer was not kept, because it was a server error.",
	lostIncomplete: "Its answer was not kept, because it was not complete.",
	lostUnknown:    "Its answer was not kept.",
	lostSealed:     "Its answer can no longer be opened.",
}

// answer is what a handler has answered.
type answer struct {
	print  string // fingerprint of the request; empty if it is not known
	status int
	header http.Header
	body   []byte
	lost   loss // why there is no more of it than the fingerprint
}

// version begins an answer that is kept, if it is not sealed.
const version = "1"

// seal returns an answer as Redis keeps it: a line with the version, the status, the fingerprint and
// the loss, then the header and the body as in a response of HTTP.
func (k *keeper) seal(a *answer, id core.Key) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %d %s %s\n", version, a.status, a.print, a.lost)
	if a.lost == "" {
		_ = a.header.Write(&b) // a buffer does not fail
		b.WriteString("\r\n")
		b.Write(a.body)
	}
	if len(k.seals) == 0 {
		return b.Bytes()
	}
	return k.seals[0].Seal(nil, nil, b.Bytes(), []byte(id.String()))
}

// open returns the answer that seal has made a text of.
func (k *keeper) open(text []byte, id core.Key) *answer {
	if len(text) == 0 {
		return &answer{lost: lostUnknown}
	}
	if len(k.seals) > 0 {
		sealed := text
		text = nil
		for _, seal := range k.seals {
			if plain, err := seal.Open(nil, nil, sealed, []byte(id.String())); err == nil {
				text = plain
				break
			}
		}
	}
	line, rest, _ := bytes.Cut(text, []byte("\n"))
	words := strings.Split(string(line), " ")
	if len(words) != 4 || words[0] != version {
		return &answer{lost: lostSealed}
	}
	a := &answer{print: words[2], lost: loss(words[3])}
	a.status, _ = strconv.Atoi(words[1]) // seal has written it
	if a.lost != "" {
		return a
	}
	in := bufio.NewReader(bytes.NewReader(rest))
	header, err := textproto.NewReader(in).ReadMIMEHeader()
	if err != nil {
		return &answer{print: a.print, lost: lostUnknown}
	}
	a.header = http.Header(header)
	a.body, _ = io.ReadAll(in) // from memory
	return a
}

// write repeats the answer.
func (a *answer) write(w http.ResponseWriter) {
	h := w.Header()
	for name, values := range a.header {
		h[name] = values
	}
	if len(a.body) > 0 && a.header[contentLength] == nil {
		h.Set(contentLength, strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the client may be gone; the server drops the body of an answer to HEAD
}
