// Package enum has what the enumerations of all packages have in common.
package enum

// Name returns the name of a value, which is its place in names.
func Name(names []string, value int) string {
	if value < len(names) {
		return names[value]
	}
	return "unknown"
}
