//go:build long

package kernel

// long asks for the longer versions of tests: make nightly.
const long = true
