package gatetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// failer is a testing.TB, or a test of rapid.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
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

// Equal reports a value that is not the wanted one. The format says which value it is.
func Equal[T comparable](t failer, got, want T, format string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), got, want)
	}
}

// Need ends the test if a value is not the wanted one.
func Need[T comparable](t failer, got, want T, format string, args ...any) {
	t.Helper()
	if got != want {
		t.Fatal(fmt.Sprintf(format, args...)+":", got, "want", want)
	}
}

// Is reports an error that is not the wanted one.
func Is(t failer, err, want error, format string, args ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", fmt.Sprintf(format, args...), err, want)
	}
}

// Err is the error of a call with another result, which a test of its error drops.
func Err[T any](_ T, err error) error { return err }

// Fails reports a call that returns no error.
func Fails(t failer, err error, format string, args ...any) {
	t.Helper()
	if err == nil {
		t.Errorf("no error: %s", fmt.Sprintf(format, args...))
	}
}

// Contains reports a text that lacks a part.
func Contains(t failer, text, part, format string, args ...any) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%s: %q lacks %q", fmt.Sprintf(format, args...), text, part)
	}
}
