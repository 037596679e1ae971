//go:build long

package engine

// long asks for the longer versions of tests: make nightly.
const long = true

// Long is long, for tests outside of the package.
const Long = long
