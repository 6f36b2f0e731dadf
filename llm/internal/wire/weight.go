package wire

// weight estimates the tokens of a text from the kinds of its bytes, as tokenizers cut them: four
// bytes of prose, three of other scripts, and one and a half of digits and of base64. It counts in
// parts of a token, so that it needs no fractions. The text may come in pieces.
type weight struct {
	sum    int64  // of what has ended
	run    uint64 // of the bytes without a space that are being read, and digitBit for each digit
	length int    // of the run
}

const (
	weightOfToken  = 12
	weightOfProse  = weightOfToken / 4
	weightOfScript = weightOfToken / 3
	weightOfDigit  = weightOfToken * 2 / 3

	// A run of longRun bytes with digits among them is no word. Base64 has one digit in 6.4, and
	// identifiers in hexadecimal more. A longer run than longest counts as several.
	longRun, longest, digitShare = 32, 1 << 24, 16

	digitBit = 1 << 32 // above the weight of the longest run
)

// weights is the weight of each byte, with digitBit for a digit, and 0 for one that ends a run.
var weights = func() (t [256]uint64) {
	for c := range t {
		switch {
		case c <= ' ':
		case '0' <= c && c <= '9':
			t[c] = weightOfDigit + digitBit
		case c >= 0x80:
			t[c] = weightOfScript
		default:
			t[c] = weightOfProse
		}
	}
	return t
}()

// add weighs a piece of the text. It adds once for each byte, since prompts are long.
func (w *weight) add(p []byte) {
	run, begin := w.run, -w.length
	for i, c := range p {
		n := weights[c]
		run += n
		if n == 0 || i-begin >= longest {
			w.run, w.length = run, i-begin
			w.end()
			if n == 0 {
				w.sum += weightOfProse
			}
			run, begin = 0, i+1
		}
	}
	w.run, w.length = run, len(p)-begin
}

// end ends the run, and with it the text.
func (w *weight) end() {
	run, digits := int64(w.run%digitBit), int64(w.run/digitBit)
	if w.length >= longRun && digits*digitShare >= int64(w.length) {
		run = int64(w.length) * weightOfDigit
	}
	w.sum += run
	w.run, w.length = 0, 0
}

// tokens returns the estimate, rounded up.
func (w *weight) tokens() int64 {
	return (w.sum + int64(w.run%digitBit) + weightOfToken - 1) / weightOfToken
}
