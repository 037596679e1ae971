package dtype

import "fmt"

// Type is the type of one stored number.
type Type uint8

// The types found in checkpoints. Names follow the safetensors format.
const (
	Invalid Type = iota
	F64
	F32
	F16
	BF16
	F8E4M3
	F8E5M2
	F8E8M0
	I64
	I32
	I16
	I8
	U64
	U32
	U16
	U8
	Bool
	I4 // pages of the KV cache only: two numbers in a byte
)

var types = [...]struct {
	name string
	size int
}{
	Invalid: {"invalid", 0},
	F64:     {"F64", 8},
	F32:     {"F32", 4},
	F16:     {"F16", 2},
	BF16:    {"BF16", 2},
	F8E4M3:  {"F8_E4M3", 1},
	F8E5M2:  {"F8_E5M2", 1},
	F8E8M0:  {"F8_E8M0", 1},
	I64:     {"I64", 8},
	I32:     {"I32", 4},
	I16:     {"I16", 2},
	I8:      {"I8", 1},
	U64:     {"U64", 8},
	U32:     {"U32", 4},
	U16:     {"U16", 2},
	U8:      {"U8", 1},
	Bool:    {"BOOL", 1},
	I4:      {"I4", 0},
}

// Parse returns the type with the given safetensors name.
func Parse(name string) (Type, error) {
	for t, x := range types {
		if x.name == name && x.size > 0 {
			return Type(t), nil
		}
	}
	return Invalid, fmt.Errorf("dtype: unknown type %q", name)
}

// Size is the number of bytes of one element, 0 if it has no whole ones.
func (t Type) Size() int { return types[t].size }

// String is the safetensors name of the type.
func (t Type) String() string {
	if int(t) >= len(types) {
		return fmt.Sprintf("Type(%d)", uint8(t))
	}
	return types[t].name
}
