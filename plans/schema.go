package plans

import (
	_ "embed"
)

//go:embed plans.schema.json
var schema string

// Schema returns the JSON Schema of the files of ParseSet, by which editors complete and check them. The
// faults of ParseSet are more: it knows time zones, and which fields depend on each other.
func Schema() string { return schema }
