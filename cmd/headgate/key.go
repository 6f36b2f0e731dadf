package main

import (
	"strings"

	"github.com/headgate/headgate/core"
)

// formatKey returns a key as people read it.
func formatKey(k core.Key) string {
	parts := k.Parts()
	if parts == nil {
		return k.String()
	}
	for i, part := range parts {
		parts[i] = strings.NewReplacer("/", "%2F", "%", "%25").Replace(part)
	}
	return strings.Join(parts, "/")
}
