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
	inPlain // a number, true, false or null
	broken
)
