// Package ptx reads, checks and executes PTX, the text that an NVIDIA driver compiles: the subset
// of our kernels, so that the text embedded in the program is tested without a GPU.
//
// Parse turns text into a Module and refuses unknown parts: an unknown directive,
// instruction, modifier or type is an error with its line. Scan finds arithmetic
// whose bits a compiler may change. A Machine has memory and executes kernels by the rules of the
// PTX manual: 32 lanes of a warp per instruction, warps and blocks in an order that a seed
// shuffles. It is stricter than a GPU: undefined behavior is a Fault, with kernel,
// block, thread and line. Races are found by the happens-before relation, so a missing barrier is an
// error in every order of execution.
package ptx
