package vulkan

// A Level is a way to compute operations of floats that a device's own instructions compute with other bits: see kernels/bits.glsl.
type Level uint32

// The levels.
const (
	Instructions Level = 0 // everything by instructions
	Doubles      Level = 1 // fused multiply-adds by float64
	Integers     Level = 2 // fused multiply-adds by integers
	Guarded      Level = 3 // by the instruction or, where numbers are near subnormal, by integers
	AllGuarded   Level = 4 // as Guarded, additions and products likewise
	GuardDoubles Level = 5 // as Doubles, where numbers are near subnormal by integers
	FewGuards    Level = 6 // as Guarded, but by the instruction in functions where subnormal numbers do not matter
)

// double reports whether the level computes with float64.
func (l Level) double() bool { return l == Doubles || l == GuardDoubles }
