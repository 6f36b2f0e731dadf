package pricefile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxNesting is the deepest nesting of a file, and maxLines bounds the time of the YAML parser,
// which is quadratic in the entries of a mapping.
const maxNesting, maxLines = 64, 20_000

// parseTree returns the JSON or YAML of a text as encoding/json does, with numbers as decimal text.
func parseTree(text []byte) (any, error) {
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff")))
	if len(text) > 0 && (text[0] == '{' || text[0] == '[') {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		var root any
		if err := d.Decode(&root); err != nil {
			return nil, err
		}
		if _, err := d.Token(); err != io.EOF {
			return nil, fmt.Errorf("bytes follow the JSON")
		}
		return root, nil
	}
	if n := bytes.Count(text, []byte{'\n'}); n > maxLines {
		return nil, fmt.Errorf("the YAML has more than %d lines", maxLines)
	}
	if bytes.Count(text, []byte{'['})+bytes.Count(text, []byte{'{'}) > maxLines {
		return nil, fmt.Errorf("the YAML has more than %d brackets", maxLines)
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, err
	}
	if len(file.Docs) != 1 {
		return nil, fmt.Errorf("the YAML has %d documents: it must have one", len(file.Docs))
	}
	return fromYAML(file.Docs[0].Body, 0)
}

// fromYAML returns a node as encoding/json would. Anchors, aliases and tags are not read.
func fromYAML(n ast.Node, depth int) (any, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("the YAML is nested more than %d levels deep", maxNesting)
	}
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return nil, nil
	case *ast.BoolNode:
		return n.Value, nil
	case *ast.IntegerNode, *ast.FloatNode:
		return json.Number(strings.ReplaceAll(n.GetToken().Value, "_", "")), nil
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.SequenceNode:
		list := make([]any, len(n.Values))
		for i, v := range n.Values {
			var err error
			if list[i], err = fromYAML(v, depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	case *ast.MappingNode:
		return fromEntries(n.Values, depth)
	case *ast.MappingValueNode:
		return fromEntries([]*ast.MappingValueNode{n}, depth)
	}
	return nil, fmt.Errorf("line %d: %s is not read", n.GetToken().Position.Line, n.Type())
}

func fromEntries(values []*ast.MappingValueNode, depth int) (any, error) {
	m := make(map[string]any, len(values))
	for _, v := range values {
		key, err := fromYAML(v.Key, depth+1)
		if err != nil {
			return nil, err
		}
		if m[fmt.Sprint(key)], err = fromYAML(v.Value, depth+1); err != nil {
			return nil, err
		}
	}
	return m, nil
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
