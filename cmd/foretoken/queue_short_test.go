//go:build !long

package main

// Sizes of the tests that kill processes.
const (
	faultLines = 60
	faultKills = 2
)
