package sampling

import (
	"math"
	"math/bits"

	"github.com/foretoken/foretoken/internal/topk"
)

const log2e = 1 / math.Ln2

// A level is how far a logit lies below the highest of its row once divided by the
// temperature, counted in steps of 2^-24 octaves, rounded down: an id at level n
// is 2^(n/2^24) times less likely than the best. A step is 4e-8 of a probability,
// finer than float32 resolves a softmax. From here on the filters count in
// integers, so sums have no order, no rounding and no error.
const (
	octave = 1 << 24

	// weightBits is the weight of level 0, the most likely id, as a power of two.
	weightBits = 42

	// floorLevel is where weights end: an id 2^43 times less likely than the best
	// counts as impossible. All of them together weigh under 3e-8 of a vocabulary
	// of 248,320.
	floorLevel = (weightBits + 1) * octave
)

// The weight of a level is a product of three powers of two, one for each part of
// the level: sixteenths of an octave, and ten bits twice below that.
const (
	coarseShift = 20
	middleShift = 10
	partMask    = 1<<10 - 1
	coarseCount = 1 << 10 // 64 octaves; those from floorLevel on weigh 0
)

type powers struct {
	coarse         [coarseCount]uint64  // times 2^44
	middle, fine   [partMask + 1]uint32 // times 2^31
	coarseMantissa [16]uint64           // one octave of coarse, times 2^63
}

// exponentials is computed from three roots of ½ in integers, and never changes.
var exponentials = newPowers()

func newPowers() *powers {
	const ( // times 2^64
		coarseRoot = 0xf5257d152486cc2c // 2^(-2^-4)
		middleRoot = 0xfffd3a3b7814eb54 // 2^(-2^-14)
		fineRoot   = 0xffffff4e8de845ae // 2^(-2^-24)
	)
	p := new(powers)
	c, m, f := uint64(1<<63), uint64(1<<63), uint64(1<<63)
	for i := range p.coarseMantissa {
		p.coarseMantissa[i] = c
		c, _ = bits.Mul64(c, coarseRoot)
	}
	for i := range floorLevel >> coarseShift {
		p.coarse[i] = p.coarseMantissa[i%16] >> (63 - weightBits - 2 + i/16)
	}
	for i := range p.middle {
		p.middle[i] = uint32((m + 1<<31) >> 32)
		p.fine[i] = uint32((f + 1<<31) >> 32)
		m, _ = bits.Mul64(m, middleRoot)
		f, _ = bits.Mul64(f, fineRoot)
	}
	return p
}

// weight is 2^42 times the likelihood of a level relative to level 0, as an
// integer: 2^42 at level 0, 0 from floorLevel on. It is off by less than 2 and
// 2^-30 of itself together. Ids are ordered by their logits, never by weight.
func weight(level uint64) uint64 {
	p := exponentials
	part := uint64(p.middle[level>>middleShift&partMask]) * uint64(p.fine[level&partMask])
	w, _ := bits.Mul64(p.coarse[min(level>>coarseShift, coarseCount-1)], part)
	return w
}

// likelihood is weight without its cut to an integer: 2^42 times the likelihood
// of a level relative to level 0, to 31 bits however small; 0 from floorLevel on.
func likelihood(level uint64) float64 {
	if level >= floorLevel {
		return 0
	}
	p := exponentials
	part := uint64(p.middle[level>>middleShift&partMask]) * uint64(p.fine[level&partMask])
	m, _ := bits.Mul64(p.coarseMantissa[level>>coarseShift&15], part)
	// m is 2^61 times the likelihood within its octave; scale by a power of two.
	return float64(m) * math.Float64frombits((1023-61+weightBits-level/octave)<<52)
}

// A scale is the softmax of one row: its highest logit and the temperature.
type scale struct {
	top   float64 // the highest logit, finite
	inv   float64 // 1 / temperature
	steps float64 // levels to one unit of logit
}

func newScale(top float32, temperature float64) scale {
	// The limit keeps 0 times infinity out: at such a temperature only ties with
	// the highest logit are left anyhow.
	return scale{
		top:   float64(top),
		inv:   min(1/temperature, math.MaxFloat64),
		steps: min(log2e*octave/temperature, math.MaxFloat64),
	}
}

// score is the logit over the temperature, relative to the highest: at most 0.
func (s scale) score(z float32) float64 {
	return float64((float64(z) - s.top) * s.inv) // the conversion keeps sums with it from fusing
}

// level is the level of a logit, floorLevel if it is that far down or not a number.
func (s scale) level(z float32) uint64 {
	x := (s.top - float64(z)) * s.steps
	if !(x < floorLevel) {
		return floorLevel
	}
	return uint64(x)
}

// lowest is the smallest logit whose level is below n, for n of at least 1. Levels
// never rise with the logit, so bisecting the floats in their order finds it.
func (s scale) lowest(n uint64) float32 {
	lo, hi := topk.Order(-math.MaxFloat32), topk.Order(float32(s.top))
	for lo < hi {
		mid := lo + (hi-lo)/2
		if (s.top-float64(topk.Unorder(mid)))*s.steps < float64(n) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return topk.Unorder(lo)
}

// masses adds up the weights of the logits of a row or list, of those with coarse
// part i in sums[i], and skips blocks whose maximum lies under low. With a mask, one word
// for a block, it leaves out what is not in it. It is the costliest loop of the package;
// see weight for what it computes.
func (s scale) masses(sums *[coarseCount]uint64, logits, maxima []float32, low float32, mask []uint64) (total uint64) {
	p := exponentials
	clear(sums[:])
	var held [topk.Block]float32
	for b, m := range maxima {
		if m < low {
			continue
		}
		block := logits[b*topk.Block : min((b+1)*topk.Block, len(logits))]
		if mask != nil && ^mask[b] != 0 {
			block = s.blot(&held, block, mask[b])
		}
		for _, z := range block {
			x := (s.top - float64(z)) * s.steps
			// Above 2^62, infinite or not a number; conversion would not be portable.
			if !(x < 1<<62) {
				continue
			}
			level := uint64(int64(x))
			coarse := min(level>>coarseShift, coarseCount-1)
			part := uint64(p.middle[level>>middleShift&partMask]) * uint64(p.fine[level&partMask])
			w, _ := bits.Mul64(p.coarse[coarse], part)
			sums[coarse] += w
		}
	}
	for _, w := range sums {
		total += w
	}
	return total
}
