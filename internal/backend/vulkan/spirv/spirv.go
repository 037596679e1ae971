// Package spirv reads modules of SPIR-V: it adds what a device can promise about floats, and checks that a module computes with
// floats only as kernels may. It does not compile them.
package spirv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// A Module is the words of a module.
type Module []uint32

// Opcodes that are met.
const (
	opExtension        = 10
	opExtInstImport    = 11
	opExtInst          = 12
	opMemoryModel      = 14
	opEntryPoint       = 15
	opExecutionMode    = 16
	opCapability       = 17
	opTypeFloat        = 22
	opTypeVector       = 23
	opTypeArray        = 28
	opTypePointer      = 32
	opConstant         = 43
	opFunction         = 54
	opParameter        = 55
	opFunctionEnd      = 56
	opFunctionCall     = 57
	opLabel            = 248
	opUndef            = 1
	capabilityFloat64  = 10
	opDecorate         = 71
	opFAdd             = 129
	opFSub             = 131
	opFMul             = 133
	opFDiv             = 136
	noContraction      = 42
	magic              = 0x07230203
	headerWords        = 5
	denormPreserve     = 4459
	signedZeroInfNan   = 4461
	roundingModeRTE    = 4462
	capabilityDenorm   = 4464
	capabilityInfNan   = 4466
	capabilityRTE      = 4467
	extInstSqrt        = 31
	extInstFma         = 50
	extInstFindSMsb    = 74
	extInstFindUMsb    = 75
	executionLocalSize = 17
)

// instruction is an instruction of a module: its words, the opcode without the length.
type instruction struct {
	op    uint32
	words []uint32 // all of them
	at    int      // in the module
}

// least is how many words instructions have at least whose words are read.
var least = map[uint32]int{
	opExtInst: 5, opEntryPoint: 3, opCapability: 2, opTypeFloat: 3, opTypeVector: 4, opTypeArray: 4, opTypePointer: 4, opConstant: 3, opFunction: 5,
	opFunctionCall: 4, opLabel: 2, opDecorate: 3, opFAdd: 5, opFSub: 5, opFMul: 5, opFDiv: 5,
}

// instructions are those of a module.
func (m Module) instructions() ([]instruction, error) {
	if len(m) < headerWords || m[0] != magic {
		return nil, errors.New("no SPIR-V module")
	}
	var list []instruction
	for at := headerWords; at < len(m); {
		n := int(m[at] >> 16)
		if n == 0 || at+n > len(m) {
			return nil, fmt.Errorf("the instruction at word %d has %d words, the module %d", at, n, len(m))
		}
		if n < least[m[at]&0xffff] {
			return nil, fmt.Errorf("opcode %d at word %d has %d words", m[at]&0xffff, at, n)
		}
		list = append(list, instruction{m[at] & 0xffff, m[at : at+n], at})
		at += n
	}
	return list, nil
}

// Read returns the module of little-endian bytes.
func Read(data []byte) (Module, error) {
	if len(data)%4 != 0 {
		return nil, fmt.Errorf("a SPIR-V module of %d bytes", len(data))
	}
	m := make(Module, len(data)/4)
	for i := range m {
		m[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	_, err := m.instructions()
	return m, err
}

// Controls are what a module asks of the device's float32.
type Controls struct{ Denorms, NaN, Nearest bool }

// WithControls returns the module with the float controls that a device has: a module may not ask for others.
func (m Module) WithControls(c Controls) (Module, error) {
	list, err := m.instructions()
	if err != nil {
		return nil, err
	}
	var capabilities, modes []uint32
	entry := uint32(0)
	for _, i := range list {
		if i.op == opEntryPoint && len(i.words) > 2 {
			entry = i.words[2]
		}
	}
	if entry == 0 {
		return nil, errors.New("a module without an entry")
	}
	for _, k := range []struct {
		on               bool
		capability, mode uint32
	}{{c.Denorms, capabilityDenorm, denormPreserve}, {c.NaN, capabilityInfNan, signedZeroInfNan}, {c.Nearest, capabilityRTE, roundingModeRTE}} {
		if k.on {
			capabilities = append(capabilities, 2<<16|opCapability, k.capability)
			modes = append(modes, 4<<16|opExecutionMode, entry, k.mode, 32)
		}
	}
	if capabilities == nil {
		return m, nil
	}
	const name = "SPV_KHR_float_controls"
	text := append([]byte(name), make([]byte, 4-len(name)%4)...)
	extension := []uint32{uint32(1+len(text)/4)<<16 | opExtension}
	for i := 0; i < len(text); i += 4 {
		extension = append(extension, binary.LittleEndian.Uint32(text[i:]))
	}
	// Order: capabilities, extensions, imports, memory model, entries, modes.
	out := append(Module{}, m[:headerWords]...)
	inCapabilities, done := true, false
	for k, i := range list {
		if inCapabilities && i.op != opCapability {
			out, inCapabilities = append(append(out, capabilities...), extension...), false
		}
		if !done && k > 0 && list[k-1].op == opEntryPoint && i.op != opEntryPoint {
			out, done = append(out, modes...), true
		}
		out = append(out, i.words...)
	}
	return out, nil
}

// WithoutFloat64 returns the module without functions that compute with float64, for devices that have no such numbers. Their calls
// become undefined numbers: kernels make them only if a specialization constant says so.
func (m Module) WithoutFloat64() (Module, error) {
	list, err := m.instructions()
	if err != nil {
		return nil, err
	}
	wide, gone := map[uint32]bool{}, map[uint32]bool{} // types and constants of float64; functions, and ids inside them
	for _, i := range list {
		switch w := i.words; {
		case i.op == opTypeFloat && w[2] == 64, (i.op == opTypeVector || i.op == opTypeArray) && wide[w[2]], i.op == opTypePointer && wide[w[3]]:
			wide[w[1]] = true
		case i.op == opConstant && wide[w[1]]:
			gone[w[2]] = true
		}
	}
	functionsWith(list, gone, func(f []instruction) bool {
		return slices.ContainsFunc(f, func(x instruction) bool { return len(x.words) > 2 && hasResult(x.op) && wide[x.words[1]] })
	})
	return m.without(list, wide, gone), nil
}

// WithoutIntegers returns the module without the function that computes fused multiply-adds by integers: of those with three parameters
// the one that looks for the highest digit. Calls become undefined numbers.
func (m Module) WithoutIntegers() Module {
	list, _ := m.instructions() // Read has found no error
	gone := map[uint32]bool{}
	functionsWith(list, gone, byIntegers)
	return m.without(list, nil, gone)
}

// WithoutGuards returns the module without the function that does nothing but call that of WithoutIntegers.
func (m Module) WithoutGuards() Module {
	list, _ := m.instructions()
	integers, gone := map[uint32]bool{}, map[uint32]bool{}
	functionsWith(list, integers, byIntegers)
	functionsWith(list, gone, func(f []instruction) bool {
		calls := 0
		for _, x := range f {
			if x.op == opFunctionCall && integers[x.words[3]] {
				calls++
			} else if x.op == opFunctionCall || x.op == opExtInst {
				return false
			}
		}
		return calls == 1
	})
	return m.without(list, nil, gone)
}

// byIntegers reports whether a function is that of WithoutIntegers.
func byIntegers(f []instruction) bool {
	return len(f) > 4 && f[3].op == opParameter && f[4].op == opLabel && slices.ContainsFunc(f, func(x instruction) bool { return x.op == opExtInst && x.words[4] == extInstFindUMsb })
}

// functionsWith adds the ids of functions, and those inside them, for which f is true.
func functionsWith(list []instruction, gone map[uint32]bool, f func([]instruction) bool) {
	from := 0
	for k, i := range list {
		if i.op == opFunction {
			from = k
		}
		if i.op != opFunctionEnd || !f(list[from:k]) {
			continue
		}
		for _, x := range list[from:k] {
			if len(x.words) > 2 && hasResult(x.op) {
				gone[x.words[2]] = true
			} else if x.op == opLabel {
				gone[x.words[1]] = true
			}
		}
	}
}

// without is the module without functions and constants, and without types of float64 if wide lists any.
func (m Module) without(list []instruction, wide, gone map[uint32]bool) Module {
	out := append(Module{}, m[:headerWords]...)
	inside := false
	for _, i := range list {
		w := i.words
		switch {
		case i.op == opFunction && gone[w[2]]:
			inside = true
		case i.op == opFunctionEnd && inside:
			inside = false
			continue
		case wide != nil && i.op == opCapability && w[1] == capabilityFloat64, i.op == opDecorate && gone[w[1]]:
			continue
		case i.op >= opTypeFloat && i.op <= opTypePointer && len(w) > 1 && wide[w[1]], i.op == opConstant && gone[w[2]]:
			continue
		case i.op == opFunctionCall && gone[w[3]]:
			out = append(out, 3<<16|opUndef, w[1], w[2])
			continue
		}
		if !inside {
			out = append(out, w...)
		}
	}
	return out
}

// hasResult reports whether an instruction within a function has a type and a result. Stores, branches, merges, barriers and returns
// have none.
func hasResult(op uint32) bool {
	switch op {
	case 62, 63, 224, 225, 228, 246, 247, 249, 250, 251, 253, 254, 255, opLabel, opFunctionEnd:
		return false
	}
	return op >= 12 && op != opDecorate && op != opEntryPoint && op != opExecutionMode && op != opMemoryModel && op != opCapability
}

// allowed are the opcodes that may have a float as their result, besides those that move numbers; see Check.
var arithmetic = []uint32{opFAdd, opFSub, opFMul, opFDiv}

// moves are the opcodes whose result is a float that existed before, or a constant.
var moves = []uint32{
	1, 12, 43, 44, 46, 50, 54, 55, 57, 61, 79, 80, 81, 82, 124, 169, 245, 111, 112, 115,
}

// Check returns an error unless every float operation of a module is an addition, a subtraction, a product or a quotient without
// contraction, a conversion, or a fused multiply-add or square root of GLSL.std.450; and unless the module has neither reductions
// over subgroups nor atomic additions of floats.
func Check(m Module) error {
	list, err := m.instructions()
	if err != nil {
		return err
	}
	floats, exact := map[uint32]bool{}, map[uint32]bool{}
	for _, i := range list {
		switch {
		case i.op == opTypeFloat, i.op == opTypeVector && floats[i.words[2]]:
			floats[i.words[1]] = true
		case i.op == opDecorate && i.words[2] == noContraction:
			exact[i.words[1]] = true
		case i.op == opCapability && i.words[1] > 61 && i.words[1] <= 68:
			return fmt.Errorf("capability %d, of operations on subgroups", i.words[1])
		}
	}
	for _, i := range list {
		if len(i.words) < 3 || !floats[i.words[1]] || i.op < 3 && i.op != 1 || i.op >= 17 && i.op <= 42 || i.op == opDecorate {
			continue
		}
		switch {
		case slices.Contains(arithmetic, i.op):
			if !exact[i.words[2]] {
				return fmt.Errorf("opcode %d at word %d may be contracted", i.op, i.at)
			}
		case i.op == opExtInst:
			if n := i.words[4]; n != extInstSqrt && n != extInstFma && n != 59 && n != 60 {
				return fmt.Errorf("GLSL.std.450 instruction %d at word %d", n, i.at)
			}
		case !slices.Contains(moves, i.op):
			return fmt.Errorf("opcode %d at word %d with a float as its result", i.op, i.at)
		}
	}
	return nil
}

// HasFloat64 reports whether a module has numbers of float64.
func (m Module) HasFloat64() bool {
	list, err := m.instructions()
	return err == nil && slices.ContainsFunc(list, func(i instruction) bool {
		return i.op == opTypeFloat && i.words[2] == 64 || i.op == opCapability && i.words[1] == capabilityFloat64
	})
}
