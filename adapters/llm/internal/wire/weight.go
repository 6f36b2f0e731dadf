package wire

// weight estimates the tokens of a text from the kinds of its bytes, as tokenizers cut them: four
// bytes of prose, three of other scripts, and one and a half of digits and of base64. It counts in
// parts of a token, so that it needs no fractions. The text may come in pieces.
type weight struct {
	sum    int64 // of what has ended
	run    int64 // of the bytes without a space that are being read
	length int64 // of the run
	digits int64 // in the run
}

const (
	weightOfToken  = 12
	weightOfProse  = weightOfToken / 4
	weightOfScript = weightOfToken / 3
	weightOfDigit  = weightOfToken * 2 / 3

	// A run of so many bytes with digits among them is no word. Base64 has one digit in 6.4, and
	// identifiers in hexadecimal more.
	longRun, digitShare = 32, 16
)

// weights is the weight of each byte, and 0 for one that ends a run.
var weights = func() (t [256]int64) {
	for c := range t {
		switch {
		case c <= ' ':
		case '0' <= c && c <= '9':
			t[c] = weightOfDigit
		case c >= 0x80:
			t[c] = weightOfScript
		default:
			t[c] = weightOfProse
		}
	}
	return t
}()

// add weighs a piece of the text.
func (w *weight) add(p []byte) {
	for _, c := range p {
		n := weights[c]
		if n == 0 {
			w.end()
			w.sum += weightOfProse
			continue
		}
		w.run += n
		w.length++
		if n == weightOfDigit {
			w.digits++
		}
	}
}

// end ends the run, and with it the text.
func (w *weight) end() {
	if w.length >= longRun && w.digits*digitShare >= w.length {
		w.run = w.length * weightOfDigit
	}
	w.sum += w.run
	w.run, w.length, w.digits = 0, 0, 0
}

// tokens returns the estimate, rounded up.
func (w *weight) tokens() int64 { return (w.sum + w.run + weightOfToken - 1) / weightOfToken }
