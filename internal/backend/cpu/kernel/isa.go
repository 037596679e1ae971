// Package kernel has the inner loops of the CPU backend, for each instruction set: products
// with packed weights, attention over a page, the delta rule over a strip, and the functions
// of a row. Kernels take slices and lengths and run on the calling thread; they know neither
// threads nor tensors. Packed weights and quantized activations are laid out here too, because
// the assembly depends on every byte of them.
//
// The definition of each kernel is portable Go, in the *_generic.go files and in
// package exactmath: one fixed order of additions for each output, which depends neither on the
// other rows of the call nor on the instruction set. Assembly returns the same bits.
package kernel

import "unsafe"

// Tile is the number of adjacent output rows of a weight: one per lane of a vector.
const Tile = 16

// PageTokens is how many positions a page of keys and values has.
const PageTokens = 64

// Set is the kernels of one instruction set. All sets return the same bits; Generic is their
// definition.
type Set struct {
	Name    string
	Missing string // why this machine cannot run it; empty if it can
	Vector  Vector

	// Integer multiplies tiles [from, to) of matrix n of w with quantized rows, padding
	// included. out is [to-from, a.OutRows(), Tile].
	Integer func(out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch)
	// Float multiplies tiles [from, to) of matrix n of w with float32 rows. out is
	// [to-from, x.N, Tile].
	Float func(out []float32, w *Weight, n, from, to int, x Rows, s *Scratch)

	// strips is the layout of Integer for rows rows, rounded that way.
	strips func(rows int, r rounding) strips
	// quantize writes one row, whole groups, to its place in a strip.
	quantize func(dst []byte, x []float32, group int, p place)
	// expanders expand superblocks of grid formats; nil: portable code.
	expanders expanders
	// scatter moves whole tiles of results to their rows; nil: one by one, in Go.
	scatter func(a *scatterArgs)
}

// Generic is portable Go.
var Generic = Set{
	Name:     "generic",
	Vector:   vectorGeneric,
	Integer:  integerTiles,
	Float:    floatTiles,
	strips:   func(int, rounding) strips { return strips{height: 1} },
	quantize: quantizeRow,
}

// Rows are N rows of Cols numbers, which begin Stride numbers apart.
type Rows struct {
	Data            []float32
	N, Cols, Stride int
}

// at is row r.
func (x Rows) at(r int) []float32 { return x.Data[r*x.Stride:][:x.Cols:x.Cols] }

// Scratch is the working memory of the products of one thread. The zero value is ready for use.
type Scratch struct {
	ints    []int16   // the codes of one block
	codes   []int8    // of a row's group
	floats  []float32 // accumulators and decoded blocks
	columns []float32 // of rows that are rotated together
	tiles   []byte    // codes and products of AMX kernels
	float   floatArgs // operands of kernels; here, handing them over allocates nothing
	decode  decodeArgs
	integer integerArgs

	expanded   Weight // superblocks of a grid format, expanded, with the memory of grid
	grid       []byte
	expandArgs expandArgs
	// factors has, from the start of a cache line on, what kernels decode of a superblock, for two tiles
	// 1,024 bytes apart: for each group 16 factors of its scales, and from byte 512 on 16 pairs of 16 bits
	// for every two groups: factors of the biases of Q4_K and Q5_K. Other formats whose codes are raised
	// have those of the scales there, times what they are raised by, negative; those of Q6_K, with 16
	// groups, begin at byte 2,048. From byte 2,560 on are integer sums, and from 4,096 on results of a tile
	// that does not exist. Products in floats have scales and biases of a tile, all float32.
	factors [5*2*8*Tile + cacheLine/4]float32
	scatter scatterArgs
}

// decoded is where factors begins.
func (s *Scratch) decoded() unsafe.Pointer {
	p := unsafe.Pointer(&s.factors)
	return unsafe.Add(p, -int(uintptr(p))&(cacheLine-1))
}

// Grow returns s with length n, reusing its memory where it can. Contents are undefined.
func Grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
