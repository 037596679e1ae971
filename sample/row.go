package sample

import (
	"math"
	"unsafe"
)

// blockSize is how many logits share one maximum. The maxima of a row are what
// every step but the softmax's sum works on: blocks that cannot matter are never
// looked at again.
const blockSize = 64

// A key is a logit and its id in one integer: the order of keys is the order of
// likelihood, and of two ids with the same logit the lower is the greater key.
func key(z float32, id int32) uint64 {
	if z == 0 {
		z = 0 // -0 and 0 tie
	}
	return uint64(order(z))<<32 | uint64(^uint32(id))
}

func keyLogit(k uint64) float32 { return unorder(uint32(k >> 32)) }

func keyID(k uint64) int32 { return int32(^uint32(k)) }

// order maps floats to integers in the same order; unorder is its inverse.
func order(z float32) uint32 {
	b := math.Float32bits(z)
	return b ^ (uint32(int32(b)>>31) | 1<<31)
}

func unorder(o uint32) float32 {
	return math.Float32frombits(o ^ (uint32(int32(^o)>>31) | 1<<31))
}

// maxima appends the highest logit of each block of the row to dst and returns
// it. A block without a number has -Inf.
func maxima(dst, row []float32) []float32 {
	for ; len(row) >= blockSize; row = row[blockSize:] {
		dst = append(dst, blockMax((*[blockSize]float32)(row)))
	}
	if len(row) > 0 {
		dst = append(dst, plainMax(row))
	}
	return dst
}

// blockMax compares the floats as integers, which takes one instruction where
// floats take a handful. That order is right among numbers that are not negative,
// and reversed among negative ones; what is not a number lies outside both.
func blockMax(block *[blockSize]float32) float32 {
	const infinity = 0x7f800000
	words := (*[blockSize]int32)(unsafe.Pointer(block))
	a, b, c, d := words[0], words[1], words[2], words[3]
	for i := 4; i < blockSize; i += 4 {
		w := (*[4]int32)(words[i:])
		a, b, c, d = max(a, w[0]), max(b, w[1]), max(c, w[2]), max(d, w[3])
	}
	highest := max(a, b, c, d)
	switch {
	case highest > infinity:
		return plainMax(block[:])
	case highest >= 0:
		return math.Float32frombits(uint32(highest))
	}
	return negativeMax((*[blockSize]uint32)(unsafe.Pointer(block)))
}

// negativeMax is blockMax where every sign is set: the smallest word is the
// highest number.
func negativeMax(words *[blockSize]uint32) float32 {
	const negativeInfinity = 0xff800000
	a, b, c, d := words[0], words[1], words[2], words[3]
	for i := 4; i < blockSize; i += 4 {
		w := (*[4]uint32)(words[i:])
		a, b, c, d = min(a, w[0]), min(b, w[1]), min(c, w[2]), min(d, w[3])
	}
	return math.Float32frombits(min(a, b, c, d, negativeInfinity))
}

// plainMax is the highest of the logits that are numbers, -Inf if there is none.
func plainMax(row []float32) float32 {
	highest := float32(math.Inf(-1))
	for _, z := range row {
		if z > highest {
			highest = z
		}
	}
	return highest
}

// finite appends the row to dst with the largest number for +Inf, and returns it.
func finite(dst, row []float32) []float32 {
	for _, z := range row {
		if z > math.MaxFloat32 {
			z = math.MaxFloat32
		}
		dst = append(dst, z)
	}
	return dst
}

// first is the lowest index of a logit equal to top, which is the highest maximum.
func first(row, maxima []float32, top float32) int {
	for b, m := range maxima {
		if m != top {
			continue
		}
		for i := b * blockSize; ; i++ {
			if row[i] == top {
				return i
			}
		}
	}
	return 0
}

// gather appends the keys of all logits of at least low, a finite number, to
// dst and returns it: ids ascending.
func gather(dst []uint64, row, maxima []float32, low float32) []uint64 {
	for b, m := range maxima {
		if m < low {
			continue
		}
		start := b * blockSize
		for i, z := range row[start:min(start+blockSize, len(row))] {
			if z >= low {
				dst = append(dst, key(z, int32(start+i)))
			}
		}
	}
	return dst
}

// retain keeps the keys of at least cut, in their order.
func retain(keys []uint64, cut uint64) []uint64 {
	kept := keys[:0]
	for _, k := range keys {
		if k >= cut {
			kept = append(kept, k)
		}
	}
	return kept
}

// reach counts keys from the greatest down, adding up their weights, and returns
// the key with which the sum reaches goal; the smallest key if it never does. It
// permutes keys, which are distinct and at least one, and takes time in
// proportion to their number whatever their order.
func reach(keys []uint64, goal uint64, weigh func(key uint64) uint64) uint64 {
	for len(keys) > 1 {
		// The pivot does not matter for the answer. A scrambled place keeps rows that
		// are sorted, or made to hurt, from costing more than others.
		at := int(mix(uint64(len(keys))) % uint64(len(keys)))
		keys[0], keys[at] = keys[at], keys[0]
		pivot := keys[0]
		greater, n := weigh(pivot), 1 // keys[1:n] are greater than the pivot
		for i := 1; i < len(keys); i++ {
			if k := keys[i]; k > pivot {
				greater += weigh(k)
				keys[i], keys[n] = keys[n], k
				n++
			}
		}
		above := greater - weigh(pivot)
		switch {
		case above >= goal && n > 1:
			keys = keys[1:n]
		case greater >= goal || n == len(keys):
			return pivot
		default:
			goal -= greater
			keys = keys[n:]
		}
	}
	return keys[0]
}
