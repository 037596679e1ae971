//go:build !noasm

package kernel

//go:noescape
func scatterAVX2(a *scatterArgs)
