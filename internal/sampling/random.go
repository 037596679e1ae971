package sampling

import "github.com/foretoken/foretoken/internal/exactmath"

// randomVersion names the layout of the randomness below. A change that gives
// other numbers for the same seed raises it. Version 1:
//
//	γ      = 0x9e3779b97f4a7c15
//	mix    = SplitMix64's output function (Steele, Lea and Flood, 2014)
//	a      = mix(seed + γ)
//	b      = mix((a xor (256·version + use)) + γ), use 0 token, 1 XTC, 2 acceptance, 3 residual
//	stream = mix((b xor position) + γ)
//	noise  = mix(stream + (id+1)·γ): output number id of SplitMix64 started at stream
//	unit   = (⌊noise/2^12⌋ + ½) / 2^52, from 2^-53 to 1 - 2^-53
//	gumbel = -log(-log(unit))
//
// Nothing is carried from one draw to the next, so neither the order of calls nor
// their number can change a draw. A coin is the unit of id 0.
const randomVersion = 1

// A use keeps draws made for different ends at the same position independent.
type use uint64

const (
	useToken    use = iota // the noise that couples target and draft
	useXTC                 // whether XTC applies
	useAccept              // the ratio rule's acceptance coin
	useResidual            // the noise of a draw from what the draft left
)

const golden = 0x9e3779b97f4a7c15

// stream is where the SplitMix64 sequence of one use at one position starts.
func stream(seed uint64, u use, pos int) uint64 {
	x := mix(seed + golden)
	x = mix((x ^ (randomVersion<<8 + uint64(u))) + golden)
	return mix((x ^ uint64(pos)) + golden)
}

// noise is the random word of one id.
func noise(stream uint64, id int32) uint64 {
	return mix(stream + (uint64(id)+1)*golden)
}

func mix(x uint64) uint64 {
	x = premix(x)
	return x ^ x>>31
}

// premix is mix without its last step, which leaves the upper 31 bits alone.
func premix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	return (x ^ x>>27) * 0x94d049bb133111eb
}

// unit maps a random word into the open interval (0, 1). 52 bits and not 53, so
// that the half stays exact and neither end is reached by rounding.
func unit(h uint64) float64 {
	return float64((float64(h>>12) + 0.5) * 0x1p-52)
}

// gumbel maps a random word to a draw from the standard Gumbel distribution.
func gumbel(h uint64) float64 {
	return -exactmath.Log(-exactmath.Log(unit(h)))
}

// premixed appends to hits those i of [lo, hi) whose id i has noise of at least
// limit, a multiple of 2^33, and returns it. It is the inner loop of a draw from
// the whole vocabulary: four ids to a turn, one branch each, hardly ever taken.
func premixed(hits []int32, stream, limit uint64, lo, hi int) []int32 {
	x := stream + (uint64(lo)+1)*golden
	i := lo
	for ; i+4 <= hi; i += 4 {
		a := premix(x)
		x += golden
		b := premix(x)
		x += golden
		c := premix(x)
		x += golden
		d := premix(x)
		x += golden
		if a >= limit || b >= limit || c >= limit || d >= limit {
			for j, h := range [4]uint64{a, b, c, d} {
				if h >= limit {
					hits = append(hits, int32(i+j))
				}
			}
		}
	}
	for ; i < hi; i++ {
		if premix(x) >= limit {
			hits = append(hits, int32(i))
		}
		x += golden
	}
	return hits
}

// premixedOf is premixed for listed ids: it appends the i of [lo, hi) whose
// ids[i] has noise of at least limit.
func premixedOf(hits, ids []int32, stream, limit uint64, lo, hi int) []int32 {
	for i, id := range ids[lo:hi] {
		if premix(stream+(uint64(id)+1)*golden) >= limit {
			hits = append(hits, int32(lo+i))
		}
	}
	return hits
}
