//go:build !long

package main

// runStopped has a test stop a node for seconds.
const runStopped = false
