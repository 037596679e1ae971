// Package ptx reads, checks and executes PTX, the text that an NVIDIA driver compiles: the subset
// that our kernels use, so that the text embedded in the program is tested where there is no GPU.
//
// Parse turns text into a Module and refuses what it does not know: an unknown directive,
// instruction, modifier or type is an error with its line, never a guess. Scan finds arithmetic
// whose bits a compiler may change. A Machine has memory and executes kernels by the rules of the
// PTX manual: 32 lanes of a warp per instruction, warps and blocks in an order that a seed
// shuffles. It is stricter than a GPU: what would be undefined there is a Fault here, with kernel,
// block, thread and line. Races are found by what happens before what, so a missing barrier is an
// error in every order, not only in the unlucky one.
package ptx
