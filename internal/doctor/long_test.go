//go:build long

package doctor

// long asks for the longer versions of tests: make nightly.
const long = true
