//go:build !noasm

package kernel

//go:generate go run -C _gen ./grid
