package llm

import (
	"math"
	"math/big"
	"math/bits"
)

// amount is a sum of products of numbers that are at least 0. It is exact: what exceeds 64 bits is
// in large. The zero value is 0.
type amount struct {
	small uint64
	large *big.Int // in place of small, or nil
}

func (a *amount) isZero() bool { return a.large == nil && a.small == 0 }

// int returns the amount as a big.Int, which may be that of a.
func (a *amount) int() *big.Int {
	if a.large != nil {
		return a.large
	}
	return new(big.Int).SetUint64(a.small)
}

// add adds another amount.
func (a *amount) add(b amount) {
	if a.large == nil && b.large == nil {
		if sum, carry := bits.Add64(a.small, b.small, 0); carry == 0 {
			a.small = sum
			return
		}
	}
	a.large = new(big.Int).Add(a.int(), b.int())
}

// times multiplies the amount. A factor below 0 counts as 0.
func (a *amount) times(n int64) {
	factor := uint64(max(0, n))
	if a.large == nil {
		if high, low := bits.Mul64(a.small, factor); high == 0 {
			a.small = low
			return
		}
	}
	a.large = new(big.Int).Mul(a.int(), new(big.Int).SetUint64(factor))
}

// addProduct adds x times y. Numbers below 0 count as 0.
func (a *amount) addProduct(x, y int64) {
	product := amount{small: uint64(max(0, x))}
	product.times(y)
	a.add(product)
}

// over divides the amount and rounds up.
func (a *amount) over(divisor amount) amount {
	if a.large == nil && divisor.large == nil {
		q := a.small / divisor.small
		if a.small%divisor.small > 0 {
			q++
		}
		return amount{small: q}
	}
	q, rest := new(big.Int).QuoRem(a.int(), divisor.int(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return amount{large: q}
}

// clamped returns the amount, or math.MaxInt64 if it is larger.
func (a *amount) clamped() int64 {
	if a.large != nil {
		if a.large.IsInt64() {
			return a.large.Int64()
		}
		return math.MaxInt64
	}
	return int64(min(a.small, math.MaxInt64))
}
