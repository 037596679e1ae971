package kernel

// Pages of 4 bits are pages of 8 bits whose codes are rounded again, to 16 levels in each half of a
// group of codedGroup codes. A level is an integer, low + i*step, so the page of 8 bits that is computed
// with has whole codes again, and kernels, scales and sums are those of 8 bits.
//
// All codes have 128 added here and are between 1 and 255, and so are levels. For the codes of half a group:
//
//	range = highest - lowest
//	step  = (range + 14)/15, at least 1 and at most 16
//	low   = lowest - (15*step - range)/2, rounded down, at least 1 and at most 255 - 15*step
//	i     = (2*(code - low) + step)/(2*step), rounded down
//
// A code changes by at most half a step. Byte b of a group has the levels of codes b and packedHalf+b,
// the first in its low bits.

const (
	packedHalf = codedGroup / 2
	// packedRange is the bytes of the steps and lows of a group.
	packedRange = 4
	// packedValues is the bytes of a group of columns of a page: [packedHalf, PageTokens] levels and
	// [packedRange, PageTokens].
	packedValues = (packedHalf + packedRange) * PageTokens
)

// packHalf finds the levels of the codes of half a group.
func packHalf(levels *[packedHalf]byte, codes []byte) (step, low byte) {
	least, most := int32(255), int32(0)
	for _, c := range codes {
		least, most = min(least, int32(c)), max(most, int32(c))
	}
	span := most - least
	s := min(max((span+14)/15, 1), 16)
	l := min(max(least-(15*s-span)>>1, 1), 255-15*s)
	inverse := uint32(1<<16+2*s-1) / uint32(2*s) // exact: quotients are below 1024
	for i, c := range codes {
		levels[i] = byte(uint32(2*(int32(c)-l)+s) * inverse >> 16)
	}
	return byte(s), byte(l)
}

// packGroup packs a group of codes. Byte b of the levels goes to dst[b*step], and range i to ranges[i*step].
func packGroup(dst, ranges, codes []byte, step int) {
	var levels [2][packedHalf]byte
	for h := range levels {
		ranges[2*h*step], ranges[(2*h+1)*step] = packHalf(&levels[h], codes[h*packedHalf:][:packedHalf])
	}
	for i, x := range levels[0] {
		dst[i*step] = x | levels[1][i]<<4
	}
}

// PackedKeys is a page of whole keys of 4 bits.
type PackedKeys struct {
	Codes  []byte    // [PageTokens, groups, codedGroup/2]
	Ranges []byte    // [groups, PageTokens, 4]: step and low of the first half of a group, then of the second
	Scales []float32 // as PutKey has them
}

// PutPackedKey is PutKey for a page of 4 bits. row is workspace, too.
func (k *Set) PutPackedKey(p PackedKeys, i int, x []float32, row *[]byte, buf *[]float32, codes *[]byte) {
	groups := CodedGroups(len(x))
	*row = Grow(*row, groups*codedGroup)
	k.PutKey(*row, p.Scales, i, x, buf, codes)
	for g := range groups {
		packGroup(p.Codes[(i*groups+g)*packedHalf:], p.Ranges[(g*PageTokens+i)*packedRange:], (*row)[g*codedGroup:], 1)
	}
}

// PutPackedValue is PutValue for a page of 4 bits, whose columns are whole groups: missing columns are zero.
// row is workspace, too.
func (k *Set) PutPackedValue(values []byte, scales []float32, i int, x []float32, row, codes *[]byte) {
	groups := CodedGroups(len(x))
	*row = Grow(*row, groups*codedGroup)
	c, scale := k.value(x, codes)
	scales[i] = scale
	for j := range *row {
		(*row)[j] = 0x80
		if j < len(c) {
			(*row)[j] = byte(c[j]) ^ 0x80
		}
	}
	for g := range groups {
		page := values[g*packedValues:][:packedValues]
		packGroup(page[i:], page[packedHalf*PageTokens+i:], (*row)[g*codedGroup:], PageTokens)
	}
}

// unpackKeys sets keys, as a page of 8 bits has them, to those of a page of 4 bits.
func unpackKeys(keys, packed, ranges []byte, groups int) {
	for i := range PageTokens {
		for g := range groups {
			r := ranges[(g*PageTokens+i)*packedRange:][:packedRange]
			to := keys[(i*groups+g)*codedGroup:][:codedGroup]
			for b, x := range packed[(i*groups+g)*packedHalf:][:packedHalf] {
				to[b], to[packedHalf+b] = r[1]+x&15*r[0], r[3]+x>>4*r[2]
			}
		}
	}
}

// unpackValues is unpackKeys for groups of columns.
func unpackValues(values []int8, packed []byte, groups int) {
	for g := range groups {
		page, to := packed[g*packedValues:][:packedValues], values[g*codedGroup*PageTokens:]
		ranges := page[packedHalf*PageTokens:]
		for b := range packedHalf {
			for i, x := range page[b*PageTokens:][:PageTokens] {
				r := func(j int) byte { return ranges[j*PageTokens+i] }
				to[b*PageTokens+i] = int8((r(1) + x&15*r(0)) ^ 0x80)
				to[(packedHalf+b)*PageTokens+i] = int8((r(3) + x>>4*r(2)) ^ 0x80)
			}
		}
	}
}
