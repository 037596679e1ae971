// Package exactmath has the elementary functions whose results decide which token comes next.
// They give the same bits on every processor. Those of the standard library do not: their assembly
// differs between machines, and some compilers fuse x*y+z, which the explicit conversions
// here prevent.
//
// Functions of float32 have names that end in 32, as in FMA32.
package exactmath
