package pricefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"regexp"
	"strconv"
)

// parseTree returns the JSON of a text, with numbers as decimal text.
func parseTree(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff"))))
	d.UseNumber()
	var root any
	if err := d.Decode(&root); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("bytes follow the JSON")
	}
	return root, nil
}

// mapping returns a mapping, or nil.
func mapping(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// A price or a number of a file has at most maxBits bits, which is a dollar a token. A label has at
// most maxRatio thousandths of the prices without it. So their product is below 2^63.
const maxBits, maxRatio = 40, 1 << 20

// decimal matches a number whose exponent is not absurd.
var decimal = regexp.MustCompile(`^(\d{1,60}(\.\d{0,60})?|\.\d{1,60})([eE][+-]?\d{1,2})?$`)

// scaled returns a number times 10^exponent divided by a divisor, if that is not negative and has at
// most maxBits, and whether it is an integer. It reads the number as decimal text, so that 1.25e-06 is
// exact. It rounds what is no integer to the nearest one, or up if that changes it by a thousandth.
func scaled(v any, exponent int, divisor int64) (n int64, exact, ok bool) {
	text, isNumber := v.(json.Number)
	if s, isText := v.(string); isText { // some files quote numbers
		text, isNumber = json.Number(s), true
	}
	if !isNumber || !decimal.MatchString(string(text)) {
		return 0, false, false
	}
	value, _ := new(big.Rat).SetString(string(text))
	scale, _ := new(big.Rat).SetString("1e" + strconv.Itoa(exponent))
	value.Mul(value, scale)
	value.Quo(value, new(big.Rat).SetInt64(divisor))
	rounded, _ := new(big.Int).SetString(value.FloatString(0), 10)
	below := new(big.Rat).Sub(value, new(big.Rat).SetInt(rounded))
	exact = below.Sign() == 0
	if below.Mul(below, big.NewRat(1000, 1)).Cmp(value) >= 0 && !exact {
		rounded.Add(rounded, big.NewInt(1))
	}
	return rounded.Int64(), exact, rounded.BitLen() <= maxBits
}
