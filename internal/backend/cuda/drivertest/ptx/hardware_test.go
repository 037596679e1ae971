package ptx

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// Instructions give the bits that an H200 gave (driver 580, compiled by it from this text) where the
// manual leaves a choice: NaN, division by zero, fields and shuffles out of range.
// A line of testdata/h200.txt is the kind of register 9, the instruction, and the result of each of
// 32 lanes. The compiler chooses which of two NaN operands is the result; the lines
// have one such case.
func TestInstructionsEqualHardware(t *testing.T) {
	edges := []uint64{
		0, 1 << 63, 0x7fa00001, 0xffc12345, 0x7f800000, 0xff800000, 0x7ff4000000007c01, 0xfff8000012347e05, 0x7ff0 << 48, 0xfff0 << 48,
		0x4f000000, 0x80000001, 0xc1e0 << 48, 0x3ff8 << 48, 0xbf000000, 0x477ff000,
	}
	var in []byte
	for i := range 32 {
		in = binary.LittleEndian.AppendUint64(in, edges[i%16])
	}
	for i := range 32 {
		in = binary.LittleEndian.AppendUint64(in, edges[(i*5+2+i/16)%16])
	}
	in = append(in, make([]byte, 256)...)
	out := map[string]string{
		"r": "cvt.u64.u32 %rd9, %r9;", "rd": "", "f": "mov.b32 %r9, %f9; cvt.u64.u32 %rd9, %r9;", "fd": "mov.b64 %rd9, %fd9;", "s": "cvt.u64.u16 %rd9, %s9;",
	}
	data := filetest.Read(t, "testdata/h200.txt")
	lines := 0
	for line := range strings.Lines(string(data)) {
		instruction, results, _ := strings.Cut(line, "|")
		kind, instruction, _ := strings.Cut(strings.TrimSpace(instruction), " ")
		text := ".version 7.8\n.target sm_90\n.address_size 64\n.entry k(.param .u64 a)\n{\n.reg .b16 %s<10>; .reg .b32 %r<20>; .reg .f32 %f<10>; .reg .f64 %fd<10>; .reg .b64 %rd<20>;\n" +
			"mov.u32 %r13, %tid.x; mul.wide.u32 %rd10, %r13, 8; ld.param.u64 %rd11, [a]; add.s64 %rd11, %rd11, %rd10;\n"
		for n := 1; n <= 2; n++ {
			text += fmt.Sprintf("ld.global.u64 %%rd%d, [%%rd11+%d]; cvt.u32.u64 %%r%d, %%rd%d; cvt.u16.u64 %%s%d, %%rd%d; mov.b32 %%f%d, %%r%d; mov.b64 %%fd%d, %%rd%d;\n", n, n*256-256, n, n, n, n, n, n, n, n)
		}
		r := newRig(t, Options{}, text+instruction+";\n"+out[kind]+"\nst.global.u64 [%rd11+512], %rd9;\nret;\n}\n")
		p := r.bytes(in)
		if err := r.try("k", 1, 32, false, p); err != nil {
			t.Fatal(err)
		}
		got := r.read(p+512, 64)
		for lane, s := range strings.Fields(results) {
			want, err := strconv.ParseUint(s, 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			if x := uint64(got[2*lane]) | uint64(got[2*lane+1])<<32; x != want {
				t.Errorf("%s of %#x and %#x: %#x, the H200 gave %#x", instruction, edges[lane%16], edges[(lane*5+2+lane/16)%16], x, want)
			}
		}
		lines++
	}
	if lines != 36 {
		t.Errorf("%d instructions, want 36", lines)
	}
}
