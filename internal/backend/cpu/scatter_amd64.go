//go:build !noasm

package cpu

//go:noescape
func scatterAVX2(a *scatterArgs)
