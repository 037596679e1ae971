package golden

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
)

func TestRandomWeightsAreThoseOfTheReference(t *testing.T) {
	for i, want := range []string{"0.4963", "0.7682", "0.0885", "0.1320"} { // torch.manual_seed(0); torch.rand(4)
		if got := fmt.Sprintf("%.4f", float64(uniform(0, 4)[i])/(1<<24)); got != want {
			t.Errorf("draw %d is %s, want %s", i, got, want)
		}
	}
	packed, random := []byte(filetest.Read(t, "testdata/dense/model.safetensors.gz")), []byte(filetest.Read(t, "testdata/dense/random.json"))
	if _, err := unpackWeights(packed, random); err != nil {
		t.Error(err)
	}
	if _, err := unpackWeights(packed, bytes.Replace(random, []byte(`"seed":7`), []byte(`"seed":8`), 1)); err == nil {
		t.Error("weights of another seed are taken for those of the reference")
	}
}

func TestRandomWeightsAreFound(t *testing.T) {
	const seed, count, scale = 3, 1000, 0.02
	values := make([]float32, count)
	for i, x := range normal(uniform(seed, 4096)[48:], count) {
		values[i] = float32(x * scale)
	}
	content := make([]byte, 2*count)
	dtype.FromF32(content, dtype.BF16, values)
	data := []byte(Tensors(t, []checkpoint.Decl{{Name: "a", Type: dtype.BF16, Shape: []int{count}}}, [][]byte{content}, nil))
	r, random := findRandom(t, data, seed+1)
	if want := (randomRange{Offset: len(data) - 2*count, Count: count, Seed: seed, Draw: 48, Scale: scale}); len(r.Ranges) != 1 || r.Ranges[0] != want {
		t.Fatalf("found %+v, want %+v", r.Ranges, want)
	}
	flipped := slices.Clone(data)
	if r.flip(flipped); !bytes.Equal(flipped[len(data)-2*count:], make([]byte, 2*count)) {
		t.Error("the weights are not zero without what was drawn")
	}
	if got, err := unpackWeights(pack(t, flipped, 2), random); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the checkpoint does not come back: %v", err)
	}
}

// findRandom looks for the tensors of a checkpoint among the draws of the first seeds, and returns the text of random.json as
// well. Pairs of numbers have the angle of a draw, whatever their standard deviation is.
func findRandom(t *testing.T, data []byte, seeds uint32) (randomWeights, []byte) {
	t.Helper()
	head := int(binary.LittleEndian.Uint64(data))
	var tensors map[string]struct {
		Type    string `json:"dtype"`
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(data[8:8+head], &tensors); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	r := randomWeights{Sum: hex.EncodeToString(sum[:])}
	const places = 1 << 12 // of angles
	values, byPlace := map[int][]float64{}, make([][]int, places)
	for _, x := range tensors {
		at, n := 8+head+x.Offsets[0], (x.Offsets[1]-x.Offsets[0])/2
		if x.Type != "BF16" || n < 512 {
			continue
		}
		for i := range n {
			values[at] = append(values[at], float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[at+2*i:]))<<16)))
		}
		for near := -5; near <= 5; near++ {
			p := (int(angle(values[at], 0)*places) + near + places) % places
			byPlace[p] = append(byPlace[p], at)
		}
	}
	for seed := range seeds {
		draws := uniform(seed, 4*len(data))
		for draw := range len(draws) - 16 {
			for _, at := range byPlace[draws[draw+8]>>12] {
				v := values[at]
				if slices.ContainsFunc([]int{0, 1, 2, 3, 4, 5, 6, 7}, func(i int) bool {
					d := math.Abs(float64(draws[draw+8+i])/(1<<24) - angle(v, i))
					return min(d, 1-d) > 0.002
				}) || draw+len(v)+16 > len(draws) {
					continue
				}
				var xy, xx float64
				for i, x := range normal(draws[draw:], len(v)) {
					xy, xx = xy+x*v[i], xx+x*x
				}
				r.Ranges = append(r.Ranges, randomRange{Offset: at, Count: len(v), Seed: seed, Draw: draw, Scale: math.Round(xy/xx*1e4) / 1e4})
			}
		}
	}
	slices.SortFunc(r.Ranges, func(a, b randomRange) int { return a.Offset - b.Offset })
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return r, append(bytes.ReplaceAll(text, []byte(`{"offset`), []byte("\n{\"offset")), '\n')
}

// angle is the angle of pair i of the first 16 numbers, from 0 to 1.
func angle(v []float64, i int) float64 {
	a := math.Atan2(v[i+8], v[i]) / (2 * math.Pi)
	return a - math.Floor(a)
}
