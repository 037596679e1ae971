package dtype

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Decodes reports whether ToF32 reads the type: the floating types up to 32 bits.
// F64 is not among them, because narrowing it would lose digits.
func (t Type) Decodes() bool {
	switch t {
	case F32, F16, BF16, F8E4M3, F8E5M2, F8E8M0:
		return true
	default:
		return false
	}
}

// ToF32 decodes the little-endian numbers of src, of type t, into dst, exactly.
// src must hold len(dst) of them and t must be one that Decodes, else it panics.
func ToF32(dst []float32, t Type, src []byte) {
	if !t.Decodes() || len(src) != len(dst)*t.Size() {
		panic(fmt.Sprintf("dtype: ToF32 of %d bytes of %v to %d numbers", len(src), t, len(dst)))
	}
	switch t {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = FromF16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case BF16:
		bf16ToF32(dst, src)
	case F8E4M3:
		for i := range dst {
			dst[i] = e4m3[src[i]]
		}
	case F8E5M2:
		for i := range dst {
			dst[i] = fromE5M2(src[i])
		}
	case F8E8M0:
		for i := range dst {
			dst[i] = FromE8M0(src[i])
		}
	}
}

// bf16ToF32 takes four numbers per load: most bytes of a release are bfloat16.
func bf16ToF32(dst []float32, src []byte) {
	for len(dst) >= 4 && len(src) >= 8 {
		w := binary.LittleEndian.Uint64(src)
		dst[0] = math.Float32frombits(uint32(w) << 16)
		dst[1] = math.Float32frombits(uint32(w) & 0xffff0000)
		dst[2] = math.Float32frombits(uint32(w>>32) << 16)
		dst[3] = math.Float32frombits(uint32(w>>32) & 0xffff0000)
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = FromBF16(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// FromF32 encodes src into dst as little-endian numbers of type t, which must be
// F32, F16, BF16 or F8E4M3, rounding as the scalar forms do. dst must have space
// for exactly len(src) numbers; else it panics.
func FromF32(dst []byte, t Type, src []float32) {
	if len(dst) != len(src)*t.Size() {
		panic(fmt.Sprintf("dtype: FromF32 of %d numbers to %d bytes of %v", len(src), len(dst), t))
	}
	switch t {
	case F32:
		for i, f := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(f))
		}
	case F16:
		for i, f := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], ToF16(f))
		}
	case BF16:
		for i, f := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], ToBF16(f))
		}
	case F8E4M3:
		for i, f := range src {
			dst[i] = ToE4M3(f)
		}
	default:
		panic(fmt.Sprintf("dtype: FromF32 to %v", t))
	}
}

// number decodes element i of src, which is of type t.
func number(t Type, src []byte, i int) float32 {
	switch t {
	case F32:
		return math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	case F16:
		return FromF16(binary.LittleEndian.Uint16(src[2*i:]))
	case BF16:
		return FromBF16(binary.LittleEndian.Uint16(src[2*i:]))
	case F8E4M3:
		return e4m3[src[i]]
	case F8E8M0:
		return FromE8M0(src[i])
	default:
		panic(fmt.Sprintf("dtype: number of type %v", t))
	}
}
