package pricefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"strconv"
	"strings"
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

// scaled returns a number times 10^exponent divided by a divisor, if that is an integer below 2^62
// that is not negative. It reads the number as decimal text, so that 1.25e-06 is exact.
func scaled(v any, exponent int, divisor int64) (int64, bool) {
	text, ok := v.(json.Number)
	if s, isText := v.(string); isText { // some files quote numbers
		text, ok = json.Number(s), s != ""
	}
	mantissa, power, hasPower := strings.Cut(strings.ToLower(string(text)), "e")
	if hasPower {
		n, err := strconv.Atoi(power)
		if err != nil || n < -60 || n > 60 {
			return 0, false
		}
		exponent += n
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	if !ok || digits == "" || len(digits) > 60 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, _ := new(big.Int).SetString(digits, 10)
	exponent -= len(fraction)
	power10 := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exponent, -exponent))), nil)
	below := big.NewInt(divisor)
	if exponent >= 0 {
		n.Mul(n, power10)
	} else {
		below.Mul(below, power10)
	}
	n, rest := n.QuoRem(n, below, new(big.Int))
	return n.Int64(), rest.Sign() == 0 && n.BitLen() <= 62
}
