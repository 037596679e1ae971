//go:build long

package spec

// long asks for the longer versions of tests: make nightly.
const long = true
