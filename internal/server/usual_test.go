//go:build !long

package server

// longer selects the longer versions of tests: make nightly.
const longer = false
