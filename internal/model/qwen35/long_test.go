//go:build long

package qwen35

// long asks for the longer versions of tests: make nightly.
const long = true
