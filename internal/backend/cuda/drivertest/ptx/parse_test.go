package ptx

import (
	"errors"
	"strings"
	"testing"
)

func TestScanFindsWhatACompilerMayChange(t *testing.T) {
	for op, want := range map[string]string{
		"add.f32 %f1, %f2, %f3;": "fused", "mul.f64 %f1, %f2, %f3;": "fused", "mad.f32 %f1, %f2, %f3, %f3;": "fused", "add.rn.ftz.f32 %f1, %f2, %f3;": "subnormal", "div.approx.f32 %f1, %f2, %f3;": "approximation",
		"ex2.approx.ftz.f32 %f1, %f2;": "subnormal", "div.full.f32 %f1, %f2, %f3;": "approximation", "fma.rz.f32 %f1, %f2, %f3, %f2;": "nearest", "atom.global.add.f32 %f1, [%rd1], %f2;": "order",
		"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1}, {%f1}, {%f1}, {%f1};": "order", "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1}, {%f1}, {%f1}, {%f1};": "order", "fma.rn.f32 %f1, %f2, %f3, %f2;": "", "max.f32 %f1, %f2, %f3;": "", "add.s32 %f1, %f2, %f3;": "",
	} {
		text := ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n.reg .f32 %f<9>; .reg .b64 %rd<2>;\n" + op + "\nret;\n}\n"
		found, err := Scan(text)
		if err != nil {
			t.Errorf("%s: %v", op, err)
		} else if (want == "") != (len(found) == 0) || want != "" && (!strings.Contains(found[0].What, want) || found[0].Line != 7) {
			t.Errorf("%s: %v, want %q", op, found, want)
		}
		if _, err := Parse(text); want != "" && err == nil {
			t.Errorf("%s: executed", op)
		}
	}
}

// Unknown text is an error with its line.
func TestUnknownTextIsAnError(t *testing.T) {
	for body, want := range map[string]string{
		"frob.u32 %r1, %r2;":                                  "not an instruction",
		"add.s32.wide %r1, %r2, %r3;":                         ".wide is not known",
		"add.b32 %r1, %r2, %r3;":                              ".b32 is not known",
		"add.s32 %r1, %r2;":                                   "operands",
		"add.s32 %r1, %r2, %rd1;":                             "has 64 bits",
		"add.s32 %r1, %r2, %q;":                               "does not fit",
		"add.s32 5, %r2, %r3;":                                "not a register",
		"add.s32 %r1, %r2, 4294967296;":                       "does not fit 32 bits",
		"add.rn.f32 %f1, %f2, 1;":                             "does not fit its type",
		"ld.const.u32 %r1, [%rd1];":                           ".const is not known",
		"ld.global.v8.u32 %r1, [%rd1];":                       ".v8 is not known",
		"ld.global.u32 %r1, [%r2];":                           "an address in 32 bits",
		"ld.global.u32 %r1, %rd1;":                            "not an address",
		"bra nowhere;":                                        "no label",
		"@%r1 bra nowhere;":                                   "not a predicate",
		"mov.u32 %r1, %clock;":                                "%clock is not known",
		"call (%r1), f, (%r2);":                               "operand",
		"L: L: ret;":                                          "stands twice",
		".reg .b32 %r1;":                                      "declared twice",
		".frob 5;":                                            "where an instruction belongs",
		"cvt.rn.f16.f64 %rs1, %fd1;":                          "becomes narrower",
		"cvt.s32.f32 %r1, %f1;":                               ".rzi",
		"bar.red.popc.u32 %r1, 0, %p1;":                       "not known",
		"cp.async.cg.shared.global [%r1], [%rd1], 8;":         "16 bytes",
		"mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 %r1;": "shape",
		"mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32 {%r1,%r1,%r1,%r1},{%r1,%r1,%r1,%r1},{%r1,%r1},{%r1,%r1,%r1,%r1};": "satfinite",
		"mov.u32 %r1, 5":    "belongs",
		"mov.u32 %r1, \x01": "byte 0x1",
	} {
		text := ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n.reg .pred %p<3>; .reg .b16 %rs<3>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .f64 %fd<2>; .reg .b64 %rd<2>;\n" + body + "\n}\n"
		_, err := Parse(text)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || !strings.Contains(syntax.What, want) || syntax.Line < 7 || syntax.Line > 8 {
			t.Errorf("%q: %v, want %q at line 7", body, err, want)
		}
	}
	for _, text := range []string{"", ".version 1.0", ".version 7.8\n.target gfx90", ".version 7.8\n.target sm_90\n.address_size 32", ".version 7.8\n.target sm_90\n.func f()", ".version 7.8\n.target sm_90\n.visible .entry k("} {
		if _, err := Parse(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

// No text makes the parser panic, and accepted text runs, ends or faults.
func FuzzParse(f *testing.F) {
	f.Add(kernelText(f, "mix"))
	f.Add(warpText("shfl.sync.bfly.b32 %r9|%p1, %r1, 1, 31, -1; bar.sync 0; L: @%p1 bra L;"))
	f.Add(warpText("mov.u64 %rd6, lo; st.local.v4.u32 [%rd6], {%r1,%r2,%r3,1}; cp.async.ca.shared.global [sh], [%rd5], 4; cp.async.commit_group; cp.async.wait_group 0;"))
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(text)
		if err != nil {
			return
		}
		if _, err := Scan(text); err != nil {
			t.Errorf("Parse takes it and Scan does not: %v", err)
		}
		for _, k := range m.Kernels() {
			machine := NewMachine(Options{Steps: 1 << 12})
			p, err := machine.Alloc(4096)
			if err != nil {
				t.Fatal(err)
			}
			params := make([]byte, k.ParamBytes)
			for i := 0; i+8 <= len(params); i += 8 {
				copy(params[i:], addresses(p))
			}
			_ = machine.Launch(Launch{Kernel: k, Grid: [3]int{2, 1, 1}, Block: [3]int{min(64, k.MaxThreads), 1, 1}, Shared: 1024, Params: params})
		}
	})
}
