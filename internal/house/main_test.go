// Package house_test holds the house to its rules: which package imports which, how complex functions
// are, that scripts keep to their contracts, that every block of a page compiles and every example
// runs.
package house_test

import (
	"log"
	"os"
	"testing"
)

// TestMain runs the tests in the module's root.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		log.Fatal(err)
	}
	m.Run()
}
