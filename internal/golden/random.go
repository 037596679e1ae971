package golden

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"

	"github.com/foretoken/foretoken/internal/dtype"
)

// randomWeights is the file random.json beside a packed checkpoint. Random weights are not stored: the generator of the
// reference draws them again, and the packed file has the exclusive or of the checkpoint with them, which is mostly zero.
type randomWeights struct {
	Sum    string        `json:"sha256"` // of the checkpoint, in hexadecimal digits
	Ranges []randomRange `json:"ranges"`
}

// randomRange is a tensor of weights in bf16 with a normal distribution around 0.
type randomRange struct {
	Offset int     `json:"offset"` // of the first byte, in the file
	Count  int     `json:"count"`  // of weights
	Seed   uint32  `json:"seed"`
	Draw   int     `json:"draw"`  // index of the first draw
	Scale  float64 `json:"scale"` // standard deviation
}

// unpackWeights restores the checkpoint of a folder of testdata from its packed file and random.json, if it has one.
func unpackWeights(packed, random []byte) ([]byte, error) {
	data, err := unpackBytes(packed, dtype.BF16.Size())
	if err != nil || random == nil {
		return data, err
	}
	var r randomWeights
	if err := json.Unmarshal(random, &r); err != nil {
		return nil, err
	}
	r.flip(data)
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != r.Sum {
		return nil, fmt.Errorf("the weights have the SHA-256 %x, want %s: the packed file or the functions of package math have changed", sum, r.Sum)
	}
	return data, nil
}

// flip replaces data by the exclusive or with the random weights.
func (r *randomWeights) flip(data []byte) {
	ends, draws := map[uint32]int{}, map[uint32][]uint32{}
	for _, t := range r.Ranges {
		ends[t.Seed] = max(ends[t.Seed], t.Draw+t.Count+16)
	}
	for seed, n := range ends {
		draws[seed] = uniform(seed, n)
	}
	for _, t := range r.Ranges {
		for i, x := range normal(draws[t.Seed][t.Draw:], t.Count) {
			bits := math.Float32bits(float32(x * t.Scale))
			bits += 0x7fff + bits>>16&1 // to the nearest bf16
			data[t.Offset+2*i] ^= byte(bits >> 16)
			data[t.Offset+2*i+1] ^= byte(bits >> 24)
		}
	}
}

// uniform returns n draws of PyTorch's CPU generator after manual_seed: 24 bits each of the Mersenne Twister mt19937.
func uniform(seed uint32, n int) []uint32 {
	const size, middle = 624, 397
	state := make([]uint32, size)
	state[0] = seed
	for i := 1; i < size; i++ {
		state[i] = 1812433253*(state[i-1]^state[i-1]>>30) + uint32(i)
	}
	draws := make([]uint32, n)
	for i := range draws {
		at := i % size
		y := state[at]&0x80000000 | state[(at+1)%size]&0x7fffffff
		state[at] = state[(at+middle)%size] ^ y>>1 ^ y&1*0x9908b0df
		y = state[at]
		y ^= y >> 11
		y ^= y << 7 & 0x9d2c5680
		y ^= y << 15 & 0xefc60000
		y ^= y >> 18
		draws[i] = y & 0xffffff
	}
	return draws
}

// normal returns n numbers with a normal distribution, as PyTorch makes them for tensors of at least 16 numbers: blocks of
// 16 draws by Box and Muller's method. If 16 does not divide n, the last 16 numbers are drawn again.
func normal(draws []uint32, n int) []float64 {
	out := make([]float64, n)
	block := func(to []float64, from []uint32) {
		for i := range 8 {
			radius := math.Sqrt(-2 * math.Log(1-float64(from[i])/(1<<24)))
			sin, cos := math.Sincos(2 * math.Pi * float64(from[i+8]) / (1 << 24))
			to[i], to[i+8] = radius*cos, radius*sin
		}
	}
	for i := 0; i+16 <= n; i += 16 {
		block(out[i:], draws[i:])
	}
	if n%16 != 0 {
		block(out[n-16:], draws[n:])
	}
	return out
}
