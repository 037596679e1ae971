//go:build long

package remote_test

// long asks for the longer versions of tests: make nightly.
const long = true
