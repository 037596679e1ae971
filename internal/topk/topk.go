// Package topk finds the highest logits of a row by the maxima of its blocks: blocks that cannot
// contain one are skipped. Sampling and devices share it. It knows numbers and
// their indices, but no tokens, tensors or threads.
package topk

import (
	"math"
	"unsafe"
)

// Block is how many logits share one maximum.
const Block = 64

// Key is a logit and its id in one integer: the order of keys is the order of likelihood, and of
// two ids with the same logit the lower is the greater key.
func Key(z float32, id int32) uint64 {
	if z == 0 {
		z = 0 // -0 and 0 tie
	}
	return uint64(Order(z))<<32 | uint64(^uint32(id))
}

// Logit is the logit of a key.
func Logit(key uint64) float32 { return Unorder(uint32(key >> 32)) }

// ID is the id of a key.
func ID(key uint64) int32 { return int32(^uint32(key)) }

// Order maps floats to integers in the same order.
func Order(z float32) uint32 {
	b := math.Float32bits(z)
	return b ^ (uint32(int32(b)>>31) | 1<<31)
}

// Unorder is the inverse of Order.
func Unorder(o uint32) float32 {
	return math.Float32frombits(o ^ (uint32(int32(^o)>>31) | 1<<31))
}

// Maxima appends the highest logit of each block of the row to dst and returns it. A block
// without a number has -Inf.
func Maxima(dst, row []float32) []float32 {
	for ; len(row) >= Block; row = row[Block:] {
		dst = append(dst, blockMax((*[Block]float32)(row)))
	}
	if len(row) > 0 {
		dst = append(dst, Max(row))
	}
	return dst
}

// blockMax compares the floats as integers, which takes one instruction instead of a
// handful. That order is right among non-negative numbers, and reversed among negative
// ones; NaN is outside both.
func blockMax(block *[Block]float32) float32 {
	const infinity = 0x7f800000
	words := (*[Block]int32)(unsafe.Pointer(block))
	a, b, c, d := words[0], words[1], words[2], words[3]
	for i := 4; i < Block; i += 4 {
		w := (*[4]int32)(words[i:])
		a, b, c, d = max(a, w[0]), max(b, w[1]), max(c, w[2]), max(d, w[3])
	}
	highest := max(a, b, c, d)
	switch {
	case highest > infinity:
		return Max(block[:])
	case highest >= 0:
		return math.Float32frombits(uint32(highest))
	}
	return negativeMax((*[Block]uint32)(unsafe.Pointer(block)))
}

// negativeMax is blockMax where every sign is set: the smallest word is the highest number.
func negativeMax(words *[Block]uint32) float32 {
	const negativeInfinity = 0xff800000
	a, b, c, d := words[0], words[1], words[2], words[3]
	for i := 4; i < Block; i += 4 {
		w := (*[4]uint32)(words[i:])
		a, b, c, d = min(a, w[0]), min(b, w[1]), min(c, w[2]), min(d, w[3])
	}
	return math.Float32frombits(min(a, b, c, d, negativeInfinity))
}

// Max is the highest logit that is not NaN, -Inf if there is none.
func Max(row []float32) float32 {
	highest := float32(math.Inf(-1))
	for _, z := range row {
		if z > highest {
			highest = z
		}
	}
	return highest
}

// Gather appends the keys of all logits of at least low, a finite number, to dst and returns it:
// ids ascending. maxima are those of the row's blocks.
func Gather(dst []uint64, row, maxima []float32, low float32) []uint64 {
	for b, m := range maxima {
		if m < low {
			continue
		}
		start := b * Block
		for i, z := range row[start:min(start+Block, len(row))] {
			if z >= low {
				dst = append(dst, Key(z, int32(start+i)))
			}
		}
	}
	return dst
}

// Retain keeps the keys of at least cut, in their order.
func Retain(keys []uint64, cut uint64) []uint64 {
	kept := keys[:0]
	for _, k := range keys {
		if k >= cut {
			kept = append(kept, k)
		}
	}
	return kept
}

// Kth is the k-th highest of logits, k at least 1, or low if that is higher.
// It works in spare, which it returns for the next call. It collects logits above the k-th highest
// so far, and selects only when it has four times too many, so that the selection costs
// little per logit.
func Kth(logits []float32, k int, low float32, spare []uint64) (float32, []uint64) {
	limit := max(4*min(k, len(logits)), 256)
	best := spare[:0]
	for i, z := range logits {
		if !(z > low) {
			continue
		}
		best = append(best, Key(z, int32(i)))
		if len(best) == limit {
			cut := Reach(best, uint64(k), one)
			best = Retain(best, cut)
			low = Logit(cut)
		}
	}
	if len(best) < k {
		return low, best
	}
	return Logit(Reach(best, uint64(k), one)), best
}

// Cut is the k-th greatest of some keys, of which there are at least k. It permutes them.
func Cut(keys []uint64, k int) uint64 { return Reach(keys, uint64(k), one) }

func one(uint64) uint64 { return 1 }

// Reach counts keys from the greatest down, adding up their weights, and returns the key with
// which the sum reaches goal; the smallest key if it never does. It permutes keys, which are
// distinct and at least one, and takes time in proportion to their number whatever their order.
func Reach(keys []uint64, goal uint64, weigh func(key uint64) uint64) uint64 {
	for {
		// Any pivot gives the same answer. A scrambled index keeps sorted or adversarial rows from
		// taking longer than others.
		at := int(uint64(len(keys)) * 0x9e3779b97f4a7c15 >> 32 % uint64(len(keys)))
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
}
