//go:build !long

package kernel

const long = false
