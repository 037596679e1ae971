package dtype

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"sort"
	"testing"
)

// small describes a floating format by its definition, for a slow decode that
// shares nothing with the fast one.
type small struct {
	name           string
	exponent, frac int  // field widths
	infinity       bool // the top exponent holds infinity and NaN, as in IEEE 754
}

var (
	half    = small{"f16", 5, 10, true}
	brain   = small{"bf16", 8, 7, true}
	quarter = small{"e4m3", 4, 3, false}
	e5m2    = small{"e5m2", 5, 2, true}
	tiny    = small{"e2m1", 2, 1, false}
)

func (s small) width() int { return 1 + s.exponent + s.frac }

func (s small) decode(v uint32) float64 {
	bias := 1<<(s.exponent-1) - 1
	frac := int(v & (1<<s.frac - 1))
	exp := int(v >> s.frac & (1<<s.exponent - 1))
	x := 0.0
	switch {
	case s.infinity && exp == 1<<s.exponent-1:
		x = math.Inf(1)
		if frac != 0 {
			x = math.NaN()
		}
	case s == quarter && v&0x7f == 0x7f:
		x = math.NaN()
	case exp == 0:
		x = math.Ldexp(float64(frac), 1-bias-s.frac)
	default:
		x = math.Ldexp(float64(frac+1<<s.frac), exp-bias-s.frac)
	}
	if v>>(s.exponent+s.frac)&1 == 1 {
		x = math.Copysign(x, -1)
	}
	return x
}

func isNaN(f float32) bool { return math.IsNaN(float64(f)) }

func TestFromFloatEqualsDefinition(t *testing.T) {
	for _, c := range []struct {
		small
		fast func(uint32) float32
	}{
		{half, func(v uint32) float32 { return FromF16(uint16(v)) }},
		{brain, func(v uint32) float32 { return FromBF16(uint16(v)) }},
		{quarter, func(v uint32) float32 { return FromE4M3(uint8(v)) }},
		{e5m2, func(v uint32) float32 { return fromE5M2(uint8(v)) }},
		{tiny, func(v uint32) float32 { return e2m1[v] }},
	} {
		t.Run("format="+c.name, func(t *testing.T) {
			for v := range uint32(1) << c.width() {
				got, want := c.fast(v), c.decode(v)
				if math.IsNaN(want) {
					if !isNaN(got) {
						t.Fatalf("%#x: got %g, want NaN", v, got)
					}
					continue
				}
				if float64(got) != want || math.Signbit(float64(got)) != math.Signbit(want) {
					t.Fatalf("%#x: got %g, want %g", v, got, want)
				}
			}
		})
	}
}

func TestFromE8M0IsPowerOfTwo(t *testing.T) {
	for b := range 255 {
		if got, want := float64(FromE8M0(uint8(b))), math.Ldexp(1, b-127); got != want {
			t.Errorf("%d: got %g, want %g", b, got, want)
		}
	}
	if f := FromE8M0(255); !isNaN(f) {
		t.Errorf("255: got %g, want NaN", f)
	}
}

// nearest rounds by search among all finite values, ties to the even code.
func (s small) nearest(codes []uint32, x float64) uint32 {
	i := sort.Search(len(codes), func(i int) bool { return s.decode(codes[i]) >= x })
	if i == len(codes) {
		return codes[i-1]
	}
	if i == 0 || s.decode(codes[i]) == x {
		return codes[i]
	}
	lo, hi := x-s.decode(codes[i-1]), s.decode(codes[i])-x
	if lo < hi || lo == hi && codes[i-1]%2 == 0 {
		return codes[i-1]
	}
	return codes[i]
}

func TestToFloatRoundsToNearestEven(t *testing.T) {
	for _, c := range []struct {
		small
		fast func(float32) uint32
		over uint32 // what is beyond the range
	}{
		{half, func(f float32) uint32 { return uint32(ToF16(f)) }, 0x7c00},
		{brain, func(f float32) uint32 { return uint32(ToBF16(f)) }, 0x7f80},
		{quarter, func(f float32) uint32 { return uint32(ToE4M3(f)) }, 0x7e},
	} {
		t.Run("format="+c.name, func(t *testing.T) {
			sign := uint32(1) << (c.width() - 1)
			var codes []uint32
			for v := range sign {
				if x := c.decode(v); !math.IsInf(x, 0) && !math.IsNaN(x) {
					codes = append(codes, v)
				}
			}
			largest := c.decode(codes[len(codes)-1])
			unit := largest - c.decode(codes[len(codes)-2])
			check := func(f float32) {
				t.Helper()
				want := c.nearest(codes, float64(f))
				if float64(f) >= largest+unit/2 {
					want = c.over
				}
				if got := c.fast(f); got != want {
					t.Fatalf("%g (%#x): got %#x, want %#x", f, math.Float32bits(f), got, want)
				}
				if got := c.fast(-f); got != want|sign {
					t.Fatalf("%g: got %#x, want %#x", -f, got, want|sign)
				}
			}
			for i, v := range codes {
				x := c.decode(v)
				check(float32(x))
				if i+1 < len(codes) {
					mid := float32((x + c.decode(codes[i+1])) / 2)
					check(mid)
					check(math.Nextafter32(mid, 0))
					check(math.Nextafter32(mid, math.MaxFloat32))
				}
			}
			r := rand.New(rand.NewPCG(1, 2))
			for range 20000 {
				if f := math.Float32frombits(r.Uint32() & 0x7fffffff); f <= math.MaxFloat32 {
					check(f)
				}
			}
			check(math.MaxFloat32)
		})
	}
}

func TestToFloatKeepsNaNAndInfinity(t *testing.T) {
	inf := float32(math.Inf(1))
	if ToF16(inf) != 0x7c00 || ToF16(-inf) != 0xfc00 || ToBF16(inf) != 0x7f80 || ToBF16(-inf) != 0xff80 {
		t.Error("infinity is lost")
	}
	if ToE4M3(inf) != 0x7e || ToE4M3(-inf) != 0xfe {
		t.Error("E4M3 has no infinity and must give its largest number")
	}
	for _, b := range []uint32{0x7f800001, 0xff800001, 0x7fffffff, 0x7fc00000} {
		f := math.Float32frombits(b)
		for name, g := range map[string]float32{"f16": FromF16(ToF16(f)), "bf16": FromBF16(ToBF16(f)), "e4m3": FromE4M3(ToE4M3(f))} {
			if !isNaN(g) || math.Float32bits(g)>>31 != b>>31 {
				t.Errorf("%s of NaN %#x: %#x", name, b, math.Float32bits(g))
			}
		}
	}
}

func TestSlicesEqualScalars(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, typ := range []Type{F32, F16, BF16, F8E4M3, F8E5M2, F8E8M0} {
		for _, n := range []int{0, 1, 3, 4, 5, 31, 64} {
			src := make([]byte, n*typ.Size())
			for i := range src {
				src[i] = byte(r.Uint32())
			}
			dst := make([]float32, n)
			ToF32(dst, typ, src)
			for i, got := range dst {
				want := scalar(typ, src, i)
				if math.Float32bits(got) != math.Float32bits(want) {
					t.Fatalf("%v: element %d of %d: got %g, want %g", typ, i, n, got, want)
				}
			}
			if typ == F8E5M2 || typ == F8E8M0 {
				continue // nothing writes these
			}
			back := make([]byte, len(src))
			FromF32(back, typ, dst)
			again := make([]float32, n)
			ToF32(again, typ, back)
			for i := range dst {
				if !isNaN(dst[i]) && dst[i] != again[i] { // a NaN may lose its payload
					t.Fatalf("%v: %g came back as %g", typ, dst[i], again[i])
				}
			}
		}
	}
}

// scalar decodes one element by the scalar functions.
func scalar(typ Type, src []byte, i int) float32 {
	switch typ {
	case F32:
		return math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	case F16:
		return FromF16(uint16(src[2*i]) | uint16(src[2*i+1])<<8)
	case BF16:
		return FromBF16(uint16(src[2*i]) | uint16(src[2*i+1])<<8)
	case F8E4M3:
		return FromE4M3(src[i])
	case F8E5M2:
		return fromE5M2(src[i])
	default:
		return FromE8M0(src[i])
	}
}

func TestConvertRefusesOurMistakes(t *testing.T) {
	for name, f := range map[string]func(){
		"short":    func() { ToF32(make([]float32, 2), F16, make([]byte, 3)) },
		"type":     func() { ToF32(make([]float32, 2), U32, make([]byte, 8)) },
		"from":     func() { FromF32(make([]byte, 3), F16, make([]float32, 2)) },
		"fromType": func() { FromF32(make([]byte, 8), U32, make([]float32, 2)) },
		"unpack":   func() { Unpack(make([]uint8, 9), 4, make([]byte, 4)) },
		"pack":     func() { Pack(make([]byte, 4), 9, make([]uint8, 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func BenchmarkToF32(b *testing.B) {
	dst := make([]float32, 4096)
	for _, typ := range []Type{BF16, F16, F8E4M3} {
		b.Run("type="+typ.String(), func(b *testing.B) {
			src := make([]byte, len(dst)*typ.Size())
			for i := range src {
				src[i] = byte(i*7 + 1)
			}
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				ToF32(dst, typ, src)
			}
		})
	}
}
