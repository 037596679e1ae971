package ptx

import (
	"fmt"
	"strings"
	"testing"
)

// warpText is a kernel of one warp whose lanes read words a, b and c of theirs, run some text, and
// write words 9 and 8.
func warpText(body string) string {
	return `.version 7.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
	.reg .pred %p<10>;
	.reg .b32 %r<20>;
	.reg .b64 %rd<10>;
	.shared .align 16 .b8 sh[256];
	.local .align 16 .b8 lo[32];
	mov.u32 %r10, %tid.x;
	mov.u32 %r11, %ctaid.x;
	mul.wide.u32 %rd1, %r10, 4;
	ld.param.u64 %rd2, [in];
	add.s64 %rd3, %rd2, %rd1;
	ld.global.u32 %r1, [%rd3];
	ld.global.u32 %r2, [%rd3+128];
	ld.global.u32 %r3, [%rd3+256];
	ld.param.u64 %rd4, [out];
	add.s64 %rd5, %rd4, %rd1;
	mov.u32 %r9, 0;
	mov.u32 %r8, 0;
	` + body + `
	st.global.u32 [%rd5], %r9;
	st.global.u32 [%rd5+128], %r8;
	ret;
}
`
}

// runWarp runs text on three words of each lane.
func runWarp(t *testing.T, body string, a, b, c [32]uint32) (first, second [32]uint32, err error) {
	t.Helper()
	r := newRig(t, Options{}, warpText(body))
	in := r.bytes(append(append(words(a[:]), words(b[:])...), words(c[:])...))
	out := r.zeros(64)
	if err := r.try("k", 1, 32, false, in, out); err != nil {
		return first, second, err
	}
	got := r.read(out, 64)
	copy(first[:], got)
	copy(second[:], got[32:])
	return first, second, nil
}

func randomWarp(seed uint64) (v [32]uint32) {
	for i := range v {
		v[i] = hash32(seed*32 + uint64(i))
	}
	return v
}

// Shuffles by the pseudocode of the manual.
func TestShuffles(t *testing.T) {
	a, by, c := randomWarp(1), randomWarp(2), randomWarp(3)
	for _, mode := range []string{"up", "down", "bfly", "idx"} {
		got, inside, err := runWarp(t, fmt.Sprintf("shfl.sync.%s.b32 %%r9|%%p1, %%r1, %%r2, %%r3, -1; selp.u32 %%r8, 1, 0, %%p1;", mode), a, by, c)
		if err != nil {
			t.Fatal(err)
		}
		for lane := range 32 {
			bval, cval, segment := int(by[lane]&31), int(c[lane]&31), int(c[lane]>>8&31)
			maxLane, minLane := lane&segment|cval&^segment, lane&segment
			var j int
			var ok bool
			switch mode {
			case "up":
				j = lane - bval
				ok = j >= maxLane
			case "down":
				j = lane + bval
				ok = j <= maxLane
			case "bfly":
				j = lane ^ bval
				ok = j <= maxLane
			default:
				j = minLane | bval&^segment
				ok = j <= maxLane
			}
			want := a[lane]
			if ok {
				want = a[j]
			}
			if got[lane] != want || inside[lane] != uint32(truth(ok)) {
				t.Errorf("%s, lane %d: %#x %d, want %#x %v", mode, lane, got[lane], inside[lane], want, ok)
			}
		}
	}
}

func TestReductionsAndVotes(t *testing.T) {
	a := randomWarp(5)
	half := [32]uint32{}
	for i := range half {
		half[i] = 0xffff << (i / 16 * 16)
	}
	for op, f := range map[string]func(x, y uint32) uint32{
		"add.s32": func(x, y uint32) uint32 { return x + y }, "max.u32": func(x, y uint32) uint32 { return max(x, y) },
		"min.s32": func(x, y uint32) uint32 { return uint32(min(int32(x), int32(y))) }, "xor.b32": func(x, y uint32) uint32 { return x ^ y },
	} {
		got, _, err := runWarp(t, "redux.sync."+op+" %r9, %r1, %r2;", a, half, a)
		if err != nil {
			t.Fatal(err)
		}
		for lane := range 32 {
			base := lane / 16 * 16
			want := a[base]
			for i := 1; i < 16; i++ {
				want = f(want, a[base+i])
			}
			if got[lane] != want {
				t.Errorf("redux %s, lane %d: %#x, want %#x", op, lane, got[lane], want)
			}
		}
	}
	got, any, err := runWarp(t, "setp.lt.s32 %p1, %r1, 0; vote.sync.ballot.b32 %r9, %p1, -1; vote.sync.all.pred %p2, %p1, -1; selp.u32 %r8, 1, 0, %p2;", a, half, a)
	if err != nil {
		t.Fatal(err)
	}
	var ballot uint32
	for i, x := range a {
		ballot |= x >> 31 << i
	}
	if got[7] != ballot || any[7] != 0 {
		t.Errorf("ballot %#x, want %#x", got[7], ballot)
	}
}

// Products by the definition: A in rows, B in columns, fragments by the manual's tables.
func TestTensorCores(t *testing.T) {
	for _, c := range []struct {
		shape       string
		k           int
		left, right bool
	}{{"m16n8k32.row.col.s32.u8.s8.s32", 32, false, true}, {"m16n8k32.row.col.s32.s8.s8.s32", 32, true, true}, {"m16n8k16.row.col.s32.s8.u8.s32", 16, true, false}, {"m16n8k32.row.col.s32.u8.u8.s32", 32, false, false}} {
		var a [16][32]int32
		var b [32][8]int32
		var in [6][32]uint32 // registers of A, then of B
		number := func(x uint32, signed bool) int32 {
			if signed {
				return int32(int8(x))
			}
			return int32(x)
		}
		for row := range 16 {
			for k := range c.k {
				x := hash32(uint64(row*40+k)) & 255
				a[row][k] = number(x, c.left)
				in[row/8+k/16*2][row%8*4+k%16/4] |= x << (k % 4 * 8)
			}
		}
		for k := range c.k {
			for n := range 8 {
				x := hash32(uint64(9000+k*8+n)) & 255
				b[k][n] = number(x, c.right)
				in[4+k/16][n*4+k%16/4] |= x << (k % 4 * 8)
			}
		}
		left, right := "{%r4,%r5,%r6,%r7}", "{%r12,%r13}"
		if c.k == 16 {
			left, right = "{%r4,%r5}", "{%r12}"
		}
		body := "ld.global.u32 %r4, [%rd3]; ld.global.u32 %r5, [%rd3+128]; ld.global.u32 %r6, [%rd3+256]; ld.global.u32 %r7, [%rd3+384]; ld.global.u32 %r12, [%rd3+512]; ld.global.u32 %r13, [%rd3+640];" +
			"mov.u32 %r14, 1262485504; mma.sync.aligned." + c.shape + " {%r15,%r16,%r17,%r18}, " + left + ", " + right + ", {%r14,%r14,%r14,%r14};" +
			"st.global.u32 [%rd5+256], %r17; st.global.u32 [%rd5+384], %r18; mov.u32 %r9, %r15; mov.u32 %r8, %r16;"
		r := newRig(t, Options{}, warpText(body))
		var flat []uint32
		for i := range in {
			flat = append(flat, in[i][:]...)
		}
		out := r.zeros(128)
		if err := r.try("k", 1, 32, false, r.bytes(words(flat)), out); err != nil {
			t.Fatal(err)
		}
		got := r.read(out, 128)
		for row := range 16 {
			for n := range 8 {
				want := int32(1262485504)
				for k := range c.k {
					want += a[row][k] * b[k][n]
				}
				if x := int32(got[(row/8*2+n%2)*32+row%8*4+n/2]); x != want {
					t.Fatalf("%s, row %d, column %d: %d, want %d", c.shape, row, n, x, want)
				}
			}
		}
	}
}

// Undefined behavior of a GPU is a fault with a reason; allowed behavior is not.
func TestFaults(t *testing.T) {
	for body, want := range map[string]string{
		"ld.global.u32 %r9, [%rd4+4096];":                                                            "of an allocation of 256",
		"ld.global.u32 %r9, [%rd5+2];":                                                               "misaligned",
		"ld.global.v2.u32 {%r9,%r8}, [%rd5];":                                                        "misaligned",
		"mov.u64 %rd6, 0; ld.global.u32 %r9, [%rd6];":                                                "no allocation",
		"ld.shared.u32 %r9, [sh];":                                                                   "never written",
		"ld.shared.u32 %r9, [sh+256];":                                                               "of shared memory at 256",
		"mov.u64 %rd6, lo; ld.local.u32 %r9, [%rd6+4];":                                              "never written",
		"mov.u64 %rd6, lo; st.local.u32 [%rd6+32], %r1;":                                             "of local memory",
		"ld.param.u32 %r9, [in+16];":                                                                 "of param memory",
		"st.shared.u32 [sh], %r10;":                                                                  "race on shared",
		"shl.b32 %r4, %r10, 2; st.shared.u32 [%r4], %r1; ld.shared.u32 %r9, [sh];":                   "race on shared",
		"setp.lt.s32 %p1, %r10, 16; @%p1 bra L; bar.sync 0; bra.uni M; L: bar.warp.sync 65535; M:":   "",
		"setp.lt.s32 %p1, %r10, 16; @%p1 bra L; bar.sync 0; L: bar.warp.sync -1;":                    "never come",
		"setp.lt.s32 %p1, %r10, 16; @%p1 bar.sync 0;":                                                "pass it by",
		"setp.lt.s32 %p1, %r10, 16; @%p1 shfl.sync.bfly.b32 %r9|%p2, %r1, 1, 31, -1;":                "do not take part",
		"setp.lt.s32 %p1, %r10, 16; @!%p1 ret; shfl.sync.bfly.b32 %r9|%p2, %r1, 16, 31, -1;":         "which does not take part",
		"setp.lt.s32 %p1, %r10, 16; @!%p1 bra L; shfl.sync.bfly.b32 %r9|%p2, %r1, 16, 31, 65535; L:": "which does not take part",
		"shfl.sync.bfly.b32 %r9|%p2, %r1, 16, 31, 65535;":                                            "does not name the lane itself",
		"setp.lt.s32 %p1, %r10, 16; @%p1 bra L; ret; L: mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%r4,%r5,%r6,%r7}, {%r1,%r2}, {%r3}, {%r1,%r1,%r1,%r1};": "mma by lanes",
		"bar.sync 1, 64;":                            "barrier 1 for 64 threads",
		"barrier.cta.arrive 20, 32;":                 "there are 16",
		"L: bra.uni L;":                              "is there an end",
		"cp.async.ca.shared.global [sh], [%rd5], 4;": "on its way",
		"mov.u32 %r4, 4; cp.async.ca.shared.global [%r4], [%rd4+4096], 4;": "of an allocation of 256",
		"barrier.cta.arrive 1, 32; barrier.cta.arrive 1, 32;":              "",
		"atom.shared.add.u32 %r9, [sh], 1;":                                "never written",
	} {
		m, err := Parse(warpText(body))
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		r := &rig{TB: t, m: NewMachine(Options{Steps: 1 << 16}), module: m}
		err = r.try("k", 1, 32, false, r.zeros(96), r.zeros(64))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

// Blocks of a launch may not meet in global memory, but by atomic operations.
func TestBlocksThatMeetAreFound(t *testing.T) {
	for body, want := range map[string]string{
		"mov.u32 %r9, %r11;": "race on global memory", // each another value
		"mov.u32 %r9, 5;":    "",                      // all the same
		"atom.global.add.u32 %r9, [%rd4+512], 1; mov.u32 %r9, 0;":                                                             "",
		"setp.eq.s32 %p1, %r11, 0; @%p1 st.global.u32 [%rd4+512], %r10; @!%p1 ld.global.u32 %r8, [%rd4+512]; mov.u32 %r8, 0;": "race on global memory",
		// A counter orders a block after the writes of others, if the atomic has acquire and release semantics.
		"atom.acq_rel.gpu.global.add.u32 %r9, [%rd4+516], 1; setp.eq.s32 %p1, %r11, 0; @%p1 st.global.u32 [%rd4+512], %r10; @!%p1 ld.global.u32 %r8, [%rd4+512]; mov.u32 %r8, 0; mov.u32 %r9, 0;": "",
		"atom.relaxed.gpu.global.add.u32 %r9, [%rd4+516], 1; setp.eq.s32 %p1, %r11, 0; @%p1 st.global.u32 [%rd4+512], %r10; @!%p1 ld.global.u32 %r8, [%rd4+512]; mov.u32 %r8, 0; mov.u32 %r9, 0;": "race on global memory",
	} {
		for seed := range uint64(4) {
			r := newRig(t, Options{Seed: seed, Threads: int(seed) + 1}, warpText(body))
			err := r.try("k", 3, 32, false, r.zeros(96), r.zeros(256))
			if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, seed %d: %v, want %q", body, seed, err, want)
			}
		}
	}
}

// Warps may reach an unaligned barrier from several places, but not an aligned one. Compilers
// make barriers of the whole block aligned.
func TestBarriersInSeveralPlaces(t *testing.T) {
	for barrier, allowed := range map[string]bool{"bar.sync 0;": false, "barrier.cta.sync.aligned 0;": false, "barrier.cta.sync 0;": true, "barrier.cta.sync 3, 64;": true} {
		r := newRig(t, Options{Steps: 1 << 16}, warpText("setp.lt.s32 %p1, %r10, 32; @%p1 bra L; "+barrier+" bra.uni M; L: "+barrier+" M:"))
		err := r.try("k", 1, 64, false, r.zeros(128), r.zeros(128))
		if (err == nil) != allowed || err != nil && !strings.Contains(err.Error(), "several places") {
			t.Errorf("%s: %v", barrier, err)
		}
	}
}
