//go:build !long

package remote_test

const long = false
