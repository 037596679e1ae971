//go:build !long

package doctor

const long = false
