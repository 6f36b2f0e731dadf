package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
)

// faults collects what is wrong with a file, each with the path of its field.
type faults []error

func (f *faults) add(at, format string, args ...any) {
	*f = append(*f, fmt.Errorf(strings.TrimSpace(at+" "+format), args...))
}

func (f *faults) err() error { return errors.Join(*f...) }

func (f *faults) between(at string, n, least, most int64) {
	if n < least || n > most {
		f.add(at, "is %d: it must be between %d and %d", n, least, most)
	}
}

// checkName accepts names that keys in Redis and pages show unchanged.
func (f *faults) checkName(at, name string) {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
	if name == "" || len(name) > 64 || strings.Trim(name, letters) != "" {
		f.add(at, "has the name %q: it must be 1 to 64 of the characters A-Z a-z 0-9 _ . and -", name)
	}
}

// decode reads one JSON value without unknown fields. It reports whether there was no fault.
func decode[T any](f *faults, at string, text []byte) (value T, ok bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&value)
	if err == nil {
		if _, end := d.Token(); end != io.EOF {
			err = errors.New("something follows the JSON value")
		}
	}
	if err != nil {
		f.add(at, "cannot be read: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return value, err == nil
}

// members is a JSON object in the order of its members. Unlike a map it keeps a name that comes
// twice, which is a fault.
type members []member

type member struct {
	name  string
	value json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *members) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return errors.New("it is no JSON object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		next := member{name: name.(string)} // the decoder accepts only strings here
		if err := d.Decode(&next.value); err != nil {
			return err
		}
		*m = append(*m, next)
	}
	return nil
}

// entries iterates over the members and their paths. None, and one that comes twice, are faults.
func (m members) entries(f *faults, at string) iter.Seq2[string, member] {
	return func(yield func(string, member) bool) {
		if len(m) == 0 {
			f.add(at, "is missing or empty")
		}
		seen := make(map[string]bool)
		for _, e := range m {
			path := at + "." + e.name
			if seen[e.name] {
				f.add(path, "comes twice")
			}
			seen[e.name] = true
			if !yield(path, e) {
				return
			}
		}
	}
}
