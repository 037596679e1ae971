//go:build long

package server

// longer asks for the longer versions of tests: make nightly.
const longer = true
