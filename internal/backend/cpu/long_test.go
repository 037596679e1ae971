//go:build long

package cpu

// long asks for the longer versions of tests: make nightly.
const long = true
