package jsonscan

// state is what a Scanner expects or reads.
type state uint8

const (
	wantValue   state = iota
	wantElement       // after [
	wantMember        // after {
	wantKey           // after a comma in an object
	wantColon
	wantComma // after a value in an object or array
	ended     // after the document
	inString
	inEscape
	inHex
	inLiteral
	inMinus
	inZero
	inInteger
	inPoint
	inFraction
	inExponent
	inSign
	inPower
	broken
)

// endsNumber reports whether a number may end in state s.
func (s state) endsNumber() bool {
	return s == inZero || s == inInteger || s == inFraction || s == inPower
}
