//go:build !long

package spec

const long = false
