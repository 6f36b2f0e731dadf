package main

import (
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/inspect"
)

// parseKey returns the key that a person writes.
func parseKey(text string) (core.Key, error) {
	key, err := inspect.ParseKey(text)
	if err != nil {
		return key, usagef("KEY %s: %w", text, err)
	}
	return key, nil
}

// formatPath returns the key of a path as parseKey reads it.
func formatPath(path string) string {
	key := core.Inside(hub.Pass{}).KeyAt(path)
	return inspect.FormatKey(key)
}
