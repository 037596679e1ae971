package gguf

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/dtype"
)

// Type is how the numbers of a tensor are written, as the format numbers the ways.
type Type uint32

// unread are the names of types that are not read.
var unread = map[Type]string{9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 26: "I32", 28: "F64"}

// String is the type's name.
func (t Type) String() string {
	k, name := t.kind(), unread[t]
	switch {
	case k == nil && name == "":
		return fmt.Sprint(uint32(t))
	case k == nil:
		return name
	case k.format == dtype.Plain:
		return k.plain.String()
	}
	return k.format.String()
}

// kind is the block layout of a type.
type kind struct {
	columns, bytes int
	plain          dtype.Type   // of numbers that are written one by one
	format         dtype.Format // of all other types
}

var kinds = map[Type]*kind{
	0:  {columns: 1, bytes: 4, plain: dtype.F32},
	1:  {columns: 1, bytes: 2, plain: dtype.F16},
	2:  blocks(dtype.Q4_0),
	3:  blocks(dtype.Q4_1),
	6:  blocks(dtype.Q5_0),
	7:  blocks(dtype.Q5_1),
	8:  blocks(dtype.Q8_0),
	10: blocks(dtype.Q2K),
	11: blocks(dtype.Q3K),
	12: blocks(dtype.Q4K),
	13: blocks(dtype.Q5K),
	14: blocks(dtype.Q6K),
	16: blocks(dtype.IQ2XXS),
	17: blocks(dtype.IQ2XS),
	18: blocks(dtype.IQ3XXS),
	19: blocks(dtype.IQ1S),
	20: blocks(dtype.IQ4NL),
	21: blocks(dtype.IQ3S),
	22: blocks(dtype.IQ2S),
	23: blocks(dtype.IQ4XS),
	27: {columns: 1, bytes: 8, plain: dtype.I64}, // of vocabularies of drafters; no weight has it
	29: blocks(dtype.IQ1M),
	30: {columns: 1, bytes: 2, plain: dtype.BF16},
	34: blocks(dtype.TQ1),
	35: blocks(dtype.TQ2),
	39: blocks(dtype.MXFP4Blocks),
	40: blocks(dtype.NVFP4Blocks),
	41: blocks(dtype.Q1_0),
	42: blocks(dtype.Q2_0),
}

func blocks(f dtype.Format) *kind {
	columns, bytes := f.BlockSize()
	return &kind{columns: columns, bytes: bytes, format: f}
}

// kind is the block layout of the type, nil if it is not supported.
func (t Type) kind() *kind { return kinds[t] }

// foreign is the first number of the types of ik_llama.cpp.
const foreign = 96

// Refuse reports all types of the file's tensors that are not read, with the number of tensors.
func (f *File) Refuse() error {
	counts := map[Type]int{}
	for _, t := range f.Tensors {
		if t.Type.kind() == nil {
			counts[t.Type]++
		}
	}
	if len(counts) == 0 {
		return nil
	}
	var list []string
	types := slices.Sorted(maps.Keys(counts))
	for _, t := range types {
		list = append(list, fmt.Sprintf("%v (%d)", t, counts[t]))
	}
	hint := ""
	if types[len(types)-1] >= foreign {
		hint = fmt.Sprintf("; only ik_llama.cpp reads types from %d on", foreign)
	}
	return fmt.Errorf("gguf: %s: types that are not supported, with the number of their tensors: %s%s: use another file of this model, or quantize it to one of %s",
		f.Parts[0].Name(), strings.Join(list, ", "), hint, readable())
}

// readable lists the types that are read.
func readable() string {
	names := make([]string, 0, len(kinds))
	for t, k := range kinds {
		if k.plain == dtype.I64 {
			continue
		}
		names = append(names, t.String())
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
