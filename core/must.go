package core

// Must returns v, and panics if err is not nil. It is for values that are made once at start-up, such
// as package-level variables:
//
//	var perMinute = core.Must(core.NewPolicy(core.PolicyConfig{
//		Name: "api", Algorithm: core.PerMinute(100),
//	}))
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
