//go:build long

package main

// Sizes of the tests that kill processes.
const (
	faultLines = 2000
	faultKills = 10
)
