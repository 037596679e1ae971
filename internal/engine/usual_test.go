//go:build !long

package engine

const long = false
