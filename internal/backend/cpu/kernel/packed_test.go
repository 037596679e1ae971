package kernel

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPackedCodesChangeByHalfAStep packs the codes between any two bounds.
func TestPackedCodesChangeByHalfAStep(t *testing.T) {
	var levels [packedHalf]byte
	codes := make([]byte, packedHalf)
	for least := 1; least <= 255; least++ {
		for most := least; most <= 255; most++ {
			codes[0], codes[1] = byte(least), byte(most)
			for i := 2; i < packedHalf; i++ {
				codes[i] = byte(least + (most-least)*i/packedHalf)
			}
			step, low := packHalf(&levels, codes)
			if range15 := int(low) + 15*int(step); step < 1 || step > 16 || low < 1 || range15 > 255 {
				t.Fatalf("codes from %d to %d: levels from %d by %d", least, most, low, step)
			}
			for i, c := range codes {
				if change := int(low) + int(levels[i])*int(step) - int(c); levels[i] > 15 || 2*max(change, -change) > int(step) {
					t.Fatalf("codes from %d to %d: %d has level %d, from %d by %d", least, most, c, levels[i], low, step)
				}
			}
		}
	}
}

// packedTrial is a page of 4 bits and the codes of 8 bits that were packed.
type packedTrial struct {
	keys         PackedKeys
	values       []byte
	codes, whole []byte // of keys; of values by row
	groups       int
}

func newPackedTrial(set *Set, width int, rng *rand.Rand) *packedTrial {
	x := &packedTrial{groups: CodedGroups(width)}
	n := x.groups * PageTokens
	x.keys = PackedKeys{make([]byte, n*packedHalf), make([]byte, n*packedRange), make([]float32, n)}
	x.values = make([]byte, x.groups*packedValues)
	scales := make([]float32, PageTokens)
	row, buf, codes := []byte(nil), []float32(nil), []byte(nil)
	for i := range PageTokens {
		numbers := make([]float32, width)
		for j := range numbers {
			numbers[j] = float32(rng.NormFloat64()) * float32(1+j%3*i)
		}
		set.PutPackedKey(x.keys, i, numbers, &row, &buf, &codes)
		x.codes = append(x.codes, row...)
		set.PutPackedValue(x.values, scales, i, numbers, &row, &codes)
		x.whole = append(x.whole, row...)
	}
	return x
}

// unpack is the page of 8 bits: keys by row, then values by column.
func (x *packedTrial) unpack(k *Coded) (keys []byte, values []int8) {
	keys, values = make([]byte, len(x.codes)), make([]int8, len(x.codes))
	k.UnpackKeys(keys, x.keys.Codes, x.keys.Ranges, x.groups)
	k.UnpackValues(values, x.values, x.groups)
	return keys, values
}

// TestPackedPagesEqualGeneric packs rows with every instruction set and unpacks them: a code changes by
// 8 at most.
func TestPackedPagesEqualGeneric(t *testing.T) {
	for _, set := range runnable() {
		for _, width := range []int{5, 64, 100, 256} {
			made := func(set *Set) *packedTrial {
				return newPackedTrial(set, width, rand.New(rand.NewPCG(4, uint64(width))))
			}
			got, want := made(&set), made(&Generic)
			if !slices.Equal(got.keys.Codes, want.keys.Codes) || !slices.Equal(got.keys.Ranges, want.keys.Ranges) || !slices.Equal(got.values, want.values) {
				t.Fatalf("%s: rows of %d are packed differently", set.Name, width)
			}
			keys, values := got.unpack(&set.Vector.Coded)
			wantKeys, wantValues := want.unpack(&codedGeneric)
			if !slices.Equal(keys, wantKeys) || !slices.Equal(values, wantValues) {
				t.Fatalf("%s: rows of %d are unpacked differently", set.Name, width)
			}
			row := got.groups * codedGroup
			for i := range keys {
				key := int(keys[i]) - int(got.codes[i])
				value := int(values[i%row*PageTokens+i/row]) + 128 - int(got.whole[i])
				if max(key, -key, value, -value) > 8 {
					t.Fatalf("%s: number %d of rows of %d changes by %d and %d", set.Name, i, width, key, value)
				}
			}
		}
	}
}
