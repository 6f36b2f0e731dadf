package gatetest

import "testing"

// failer is a testing.TB, or a test of rapid.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// Must returns the value of a call that must not fail: Must(net.Dial(network, address))(t).
func Must[T any](value T, err error) func(failer) T {
	return func(t failer) T {
		t.Helper()
		NoError(t, err)
		return value
	}
}

// NoError ends the test if there is an error.
func NoError(t failer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Worked reports an error, and the test goes on.
func Worked(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
