package dtype

import (
	"encoding/binary"
	"fmt"
)

// soundScales is Sound for formats with separate scales and biases.
func (m *Matrix) soundScales(r0, r1 int) error {
	n := m.ScaleRowBytes()
	if n == 0 {
		return nil
	}
	for _, part := range []struct {
		name string
		b    []byte
	}{{"scale", m.Scales}, {"bias", m.Biases}} {
		if len(part.b) == 0 {
			continue
		}
		if i := notFinite(m.ScaleType, part.b[r0*n:r1*n]); i >= 0 {
			return fmt.Errorf("row %d: a group has the %s %g: the file is damaged", r0+i*m.ScaleType.Size()/n, part.name,
				number(m.ScaleType, part.b[r0*n:], i))
		}
	}
	return nil
}

// notFinite is the index of the first infinity or NaN in b, -1 if all are finite. It checks eight bytes
// at a time: a number is not finite if all bits of its exponent are set, of one byte if all bits of a mask are.
func notFinite(t Type, b []byte) int {
	var mask, top uint64
	switch t {
	case F32:
		mask, top = 0x7f800000<<32|0x7f800000, 1<<63|1<<31
	case F16:
		mask, top = 0x7c007c007c007c00, 0x8000800080008000
	case BF16:
		mask, top = 0x7f807f807f807f80, 0x8000800080008000
	case F8E4M3:
		mask, top = 0x7f*eachBit, 0x80*eachBit
	case F8E8M0:
		mask, top = 0xff*eachBit, 0x80*eachBit
	default:
		return -1
	}
	word := func(i int) uint64 {
		if i+8 <= len(b) {
			return binary.LittleEndian.Uint64(b[i:])
		}
		var last [8]byte
		copy(last[:], b[i:])
		return binary.LittleEndian.Uint64(last[:])
	}
	for i := 0; i < len(b); i += 8 {
		// x has no bit of a number's mask only where all are set. Adding all bits below the top one carries into that where x has any.
		x := ^word(i) & mask
		if (x&^top+(top-top>>(8*t.Size()-1))|x)&top != top {
			at := i / t.Size()
			for finite(number(t, b, at)) {
				at++
			}
			return at
		}
	}
	return -1
}

func finite(x float32) bool { return x-x == 0 }
