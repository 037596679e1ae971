package spirv

import (
	"slices"
	"strings"
	"testing"
)

// module is a small one: an addition, a product and a function of float64, with names of ids as numbers.
func module() Module {
	m := Module{magic, 0x00010600, 0, 40, 0}
	for _, i := range [][]uint32{
		{opCapability, 1},
		{opCapability, capabilityFloat64},
		{opExtInstImport, 1, 0x4c534c47, 0x6474732e, 0x3035342e, 0},
		{opMemoryModel, 0, 1},
		{opEntryPoint, 5, 10, 0x6e69616d, 0},
		{opExecutionMode, 10, executionLocalSize, 64, 1, 1},
		{opDecorate, 20, noContraction},
		{opDecorate, 21, noContraction},
		{opDecorate, 31, noContraction},
		{19, 2},
		{opTypeFloat, 3, 32},
		{opTypeFloat, 4, 64},
		{opTypePointer, 5, 7, 4},
		{33, 6, 2},
		{33, 7, 4},
		{opConstant, 3, 8, 0x3f800000},
		{opConstant, 4, 9, 0, 0x3ff00000},
		{opFunction, 2, 10, 0, 6},
		{opLabel, 11},
		{opFAdd, 3, 20, 8, 8},
		{opFMul, 3, 21, 20, 8},
		{opExtInst, 3, 22, 1, extInstFma, 8, 8, 20},
		{opFunctionCall, 3, 23, 30},
		{253},
		{opFunctionEnd},
		{opFunction, 3, 30, 0, 7},
		{opLabel, 32},
		{opFAdd, 4, 31, 9, 9},
		{115, 3, 33, 31},
		{254, 33},
		{opFunctionEnd},
	} {
		m = append(m, uint32(len(i))<<16|i[0])
		m = append(m, i[1:]...)
	}
	return m
}

// TestCheckFindsPlantedFaults changes one instruction at a time.
func TestCheckFindsPlantedFaults(t *testing.T) {
	if err := Check(module()); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		from, to []uint32
		want     string
	}{
		"an addition that may be contracted": {[]uint32{3<<16 | opDecorate, 20, noContraction}, []uint32{3<<16 | opDecorate, 22, noContraction}, "may be contracted"},
		"a remainder":                        {[]uint32{5<<16 | opFMul, 3, 21}, []uint32{5<<16 | 140, 3, 21}, "opcode 140"},
		"a negation":                         {[]uint32{5<<16 | opFMul, 3, 21}, []uint32{5<<16 | 127, 3, 21}, "opcode 127"},
		"a sum over a subgroup":              {[]uint32{5<<16 | opFMul, 3, 21}, []uint32{5<<16 | 350, 3, 21}, "opcode 350"},
		"a capability of subgroups":          {[]uint32{2<<16 | opCapability, capabilityFloat64}, []uint32{2<<16 | opCapability, 63}, "capability 63"},
		"an exponential of the device":       {[]uint32{3, 22, 1, extInstFma}, []uint32{3, 22, 1, 27}, "instruction 27"},
	} {
		m := module()
		at := index(m, c.from)
		if at < 0 {
			t.Fatalf("%s: not found", what)
		}
		copy(m[at:], c.to)
		if err := Check(m); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// index is where words are in a module, or -1.
func index(m Module, words []uint32) int {
	for i := range m {
		if i+len(words) <= len(m) && slices.Equal(m[i:i+len(words)], words) {
			return i
		}
	}
	return -1
}

// TestControlsAreAdded checks that capabilities, the extension and modes come where they belong, and only those of the device.
func TestControlsAreAdded(t *testing.T) {
	m, err := module().WithControls(Controls{Denorms: true, Nearest: true})
	if err != nil {
		t.Fatal(err)
	}
	list, err := m.instructions()
	if err != nil {
		t.Fatal(err)
	}
	var order []uint32
	for _, i := range list[:9] {
		order = append(order, i.op)
	}
	want := []uint32{opCapability, opCapability, opCapability, opCapability, opExtension, opExtInstImport, opMemoryModel, opEntryPoint, opExecutionMode}
	if !slices.Equal(order, want) {
		t.Errorf("instructions %v, want %v", order, want)
	}
	for _, words := range [][]uint32{{2<<16 | opCapability, capabilityDenorm}, {2<<16 | opCapability, capabilityRTE}, {4<<16 | opExecutionMode, 10, denormPreserve, 32}, {4<<16 | opExecutionMode, 10, roundingModeRTE, 32}} {
		if index(m, words) < 0 {
			t.Errorf("%v is missing", words)
		}
	}
	if index(m, []uint32{2<<16 | opCapability, capabilityInfNan}) >= 0 {
		t.Error("the module asks for what the device lacks")
	}
	if same, err := module().WithControls(Controls{}); err != nil || !slices.Equal(same, module()) {
		t.Errorf("a module without controls is another one: %v", err)
	}
}

// TestFloat64IsRemoved checks that nothing of float64 is left, and nothing else is gone.
func TestFloat64IsRemoved(t *testing.T) {
	m, err := module().WithoutFloat64()
	if err != nil {
		t.Fatal(err)
	}
	if m.HasFloat64() || !module().HasFloat64() {
		t.Error("float64 is left, or never was")
	}
	if err := Check(m); err != nil {
		t.Error(err)
	}
	list, err := m.instructions()
	if err != nil {
		t.Fatal(err)
	}
	functions := 0
	for _, i := range list {
		if i.op == opFunction {
			functions++
		}
		if i.op == opUndef && !slices.Equal(i.words[1:], []uint32{3, 23}) {
			t.Errorf("undefined %v", i.words)
		}
		for _, gone := range []uint32{30, 31, 33} {
			if i.op != opExecutionMode && len(i.words) > 2 && slices.Contains(i.words[1:3], gone) {
				t.Errorf("opcode %d uses %d, which is gone", i.op, gone)
			}
		}
	}
	if functions != 1 || index(m, []uint32{3<<16 | opUndef, 3, 23}) < 0 {
		t.Errorf("%d functions, or no undefined number for the call", functions)
	}
}

// FuzzRead has any bytes as a module: what is accepted can be checked and changed.
func FuzzRead(f *testing.F) {
	var data []byte
	for _, w := range module() {
		data = append(data, byte(w), byte(w>>8), byte(w>>16), byte(w>>24))
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Read(data)
		if err != nil {
			return
		}
		_ = Check(m)
		if m, err = m.WithoutFloat64(); err == nil {
			_, _ = m.WithControls(Controls{true, true, true})
			_ = m.WithoutIntegers()
			_ = m.WithoutGuards()
		}
	})
}
