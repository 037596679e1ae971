package ptx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// kernelText is the text of a module with one kernel of study.ptx.
func kernelText(t testing.TB, kernel string) string {
	t.Helper()
	text, err := studyText()
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(text, ".visible")
	_, body, ok := strings.Cut(text, ".visible .entry "+kernel+"(")
	if !ok {
		t.Fatalf("there is no kernel %s", kernel)
	}
	body, _, _ = strings.Cut(body, "\n}\n")
	return head + ".visible .entry " + kernel + "(" + body + "\n}\n"
}

// replace changes occurrence n of a piece of text, and reports whether there is one.
func replace(text, old, changed string, n int) (string, bool) {
	at := 0
	for ; ; n-- {
		i := strings.Index(text[at:], old)
		if i < 0 {
			return "", false
		}
		at += i
		if n == 0 {
			return text[:at] + changed + text[at+len(old):], true
		}
		at += len(old)
	}
}

// plant runs a scene with a changed text of a kernel.
func plant(t *testing.T, scene func(r *rig) error, text string, seed uint64) error {
	t.Helper()
	m, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Options{Seed: seed})
	r.patched = m
	return scene(r)
}

// errDiffers is of a scene whose results are not those of the kernel as it was.
var errDiffers = errors.New("other results")

// scenes are launches of the kernels on small shapes.
var scenes = map[string]func(r *rig) error{
	"norm": func(r *rig) error {
		return r.scene("norm", [3]int{8, 1, 1}, 128, 512*4, 8*512, func(out uint64) []any {
			return []any{r.floats(values(8*512, 1, 3)), r.floats(values(512, 2, 1)), out, r.acts(8, 512), 512, float32(1e-6)}
		})
	},
	"deltaMix": func(r *rig) error {
		return r.scene("deltaMix", [3]int{2, 2, 1}, 256, 0, 2*2*128, func(out uint64) []any { return []any{r.smallDelta(out, 0)} })
	},
	"deltaRecur": func(r *rig) error {
		return r.scene("deltaRecur", [3]int{16, 1, 1}, 128, 0, 2*4*128, func(out uint64) []any { return []any{r.smallDelta(0, out)} })
	},
	"attPrep":  func(r *rig) error { return r.smallAttention("attPrep") },
	"attPage4": func(r *rig) error { return r.smallAttention("attPage4") },
	"attJoin":  func(r *rig) error { return r.smallAttention("attJoin") },
	"candidates": func(r *rig) error {
		logits := r.floats(values(4096, 77, 12))
		top := r.zeros(64)
		r.after("maxima", [3]int{8, 1, 1}, [3]int{256, 1, 1}, 0, logits, top, 4096)
		return r.scene("candidates", [3]int{1, 1, 1}, 1024, 0, 1, func(out uint64) []any {
			return []any{logits, top, r.zeros(1024), out, 4096, 20, 512}
		})
	},
	"relay4": func(r *rig) error {
		p := r.product(4, 3, 32, 2048, true)
		return r.scene("relay4", [3]int{1, 1, 1}, 256, ring4, 3*32, func(out uint64) []any { p.out = out; return []any{p.params()} })
	},
	"persistent4": func(r *rig) error {
		p := r.product(4, 3, 64, 1024, true)
		return r.scene("persistent4", [3]int{1, 1, 1}, 256, ring4, 3*64, func(out uint64) []any { p.out = out; return []any{p.params()} })
	},
	"tile4": func(r *rig) error {
		p := r.product(4, 128, 128, 256, false)
		return r.scene("tile4", [3]int{1, 1, 1}, 256, tileShared, 128*128, func(out uint64) []any { p.out = out; return []any{p.params()} })
	},
	"swigluQ": func(r *rig) error {
		return r.scene("swigluQ", [3]int{2, 1, 1}, 256, 0, 1024, func(out uint64) []any {
			return []any{r.floats(values(2048, 31, 3)), r.acts(1, 1024), 1024, out}
		})
	},
}

// results are those of scenes, by kernel.
var results = map[string][]uint32{}

// scene launches a kernel, and the kernel with the changed text if there is one: an error is a
// fault, or results of n words that differ.
func (r *rig) scene(kernel string, grid [3]int, threads, shared, n int, params func(out uint64) []any) error {
	r.Helper()
	block := [3]int{threads, 1, 1}
	want, ok := results[kernel]
	if !ok || r.patched == nil {
		right := r.zeros(n)
		r.after(kernel, grid, block, shared, params(right)...)
		want = r.read(right, n)
		results[kernel] = want
	}
	if r.patched == nil {
		return nil
	}
	out := r.zeros(n)
	args := params(out)
	r.module, r.patched = r.patched, nil
	if err := r.try(kernel, grid, block, shared, args...); err != nil {
		return err
	}
	if !slices.Equal(r.read(out, n), want) {
		return errDiffers
	}
	return nil
}

// smallDelta is a delta layer of 2 key heads and 4 value heads, 2 rows; either its queries or its
// outputs go to memory of the caller.
func (r *rig) smallDelta(q, out uint64) fields {
	const kh, vh, channels, n = 2, 4, 1024, 2
	if q == 0 {
		q = r.floats(values(n*kh*128, 40, 1))
	}
	if out == 0 {
		out = r.zeros(n * vh * 128)
	}
	some := func(n int, seed uint64) uint64 { return r.floats(values(n, seed, 1)) }
	return fields{
		kh, vh, n, 0, 2, some(n*channels, 1), channels, some(n*vh*128, 2), some(n*vh, 3), some(n*vh, 4), vh * 128, vh,
		some(4*channels, 5), some(vh, 6), some(vh, 7), some(128, 8), some(vh*128*128, 9), some(11*channels, 10), some(8*kh*128, 11), some(8*vh*128, 12),
		some(8*vh, 13), uint64(vh * 128 * 128), q, some(n*kh*128, 14), some(n*vh*128, 15), some(n*kh, 16), some(n*vh, 17), some(n*vh, 18), out,
	}
}

// smallAttention has two pages and one row, of two KV heads with four queries each.
func (r *rig) smallAttention(kernel string) error {
	r.Helper()
	halves := make([]byte, 0, 2*2*2*64*256)
	for _, x := range values(2*2*64*256, 9, 1) {
		halves = binary.LittleEndian.AppendUint16(halves, uint16(narrow16(x)))
	}
	table := binary.LittleEndian.AppendUint64(nil, r.bytes(halves))
	pages := r.bytes(binary.LittleEndian.AppendUint64(table, r.bytes(halves)))
	rot := r.floats(values(64, 3, 1))
	params := func(queries, mid, sums uint64) fields {
		return fields{
			pages, 0, 2, 4, 1, 70, 2, r.floats(values(8*512, 1, 2)), 8 * 512,
			r.floats(values(512, 2, 2)), r.floats(values(512, 3, 2)), 512, r.floats(values(256, 4, 1)), r.floats(values(256, 5, 1)), rot, float32(1e-6), queries, mid, sums,
		}
	}
	queries, mid, sums := r.floats(values(8*256, 6, 1)), r.floats(values(16*256, 7, 1)), r.floats(values(32, 8, 1))
	switch kernel {
	case "attPrep":
		return r.scene(kernel, [3]int{3, 1, 1}, 128, 0, 8*256, func(out uint64) []any { return []any{params(out, mid, sums), rot} })
	case "attPage4":
		return r.scene(kernel, [3]int{2, 2, 1}, 128, 0, 16*256, func(out uint64) []any { return []any{params(queries, out, r.zeros(32)), float32(0.0625)} })
	}
	return r.scene(kernel, [3]int{4, 2, 4}, 64, 0, 2048, func(out uint64) []any { return []any{params(queries, mid, sums), r.acts(1, 2048), out} })
}

// Barriers that the study's kernels do not need: what they separate belongs to the same threads, or
// is separated by another one.
var spare = map[string]bool{
	"attPrep bar.warp.sync 0": true, "deltaMix bar.sync 2": true,
	"candidates bar.sync 3": true, "candidates bar.sync 7": true, "candidates bar.sync 11": true, "candidates bar.sync 15": true,
}

// Every barrier of every kernel, and every wait for a copy, is missed when it is gone, in whatever
// order warps run; and those that nobody misses are known.
func TestMissingBarriersAreFound(t *testing.T) {
	for kernel, scene := range scenes {
		text := kernelText(t, kernel)
		for _, gone := range []string{"bar.sync", "bar.warp.sync", "barrier.cta.sync", "barrier.cta.arrive", "cp.async.wait_group"} {
			for n := 0; ; n++ {
				changed, ok := replace(text, gone, "//", n)
				if !ok {
					break
				}
				what := fmt.Sprint(kernel, " ", gone, " ", n)
				err := plant(t, scene, changed, uint64(n))
				var fault *Fault
				if spare[what] {
					if err != nil {
						t.Errorf("without %s, which is spare: %v", what, err)
					}
				} else if !errors.As(err, &fault) {
					t.Errorf("without %s: %v", what, err)
				}
			}
		}
	}
}

func TestPlantedFaultsAreFound(t *testing.T) {
	for _, c := range []struct {
		kernel, was, is string
		n               int
		want            string // of the fault, or "" for results that differ
	}{
		{"tile4", "cp.async.wait_group 1;", "cp.async.wait_group 2;", 0, "on its way"},
		{"relay4", "cp.async.wait_group 2;", "cp.async.wait_group 3;", 0, "on its way"},
		{"persistent4", "cp.async.wait_group 2;", "cp.async.wait_group 3;", 0, "on its way"},
		{"relay4", "barrier.cta.arrive %r", "barrier.cta.arrive 0, 64; // %r", 0, "deadlock"},
		{"relay4", "barrier.cta.arrive %r", "barrier.cta.arrive 20, 64; // %r", 0, "there are 16"},
		{"relay4", "bar.warp.sync \t-1", "bar.warp.sync \t65535", 0, "membermask"},
		{"norm", "bar.sync \t0;", "bar.sync \t0, 96;", 0, "barrier 0"},
	} {
		changed, ok := replace(kernelText(t, c.kernel), c.was, c.is, c.n)
		if !ok {
			t.Errorf("%s has no %q", c.kernel, c.was)
			continue
		}
		err := plant(t, scenes[c.kernel], changed, 1)
		var fault *Fault
		if c.want == "" && !errors.Is(err, errDiffers) || c.want != "" && (!errors.As(err, &fault) || !strings.Contains(fault.What, c.want)) {
			t.Errorf("%s with %q for %q: %v, want %q", c.kernel, c.is, c.was, err, c.want)
		}
	}
}

// A kernel that does not wait for those before it reads what they may not have written yet.
func TestMissingGridWaitIsFound(t *testing.T) {
	m, err := Parse(strings.ReplaceAll(kernelText(t, "relay4"), "griddepcontrol.wait;", ""))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Options{})
	p := r.product(4, 3, 32, 1024, true)
	r.launch("relay4", [3]int{1, 1, 1}, [3]int{256, 1, 1}, ring4, p.params())
	p = r.product(4, 3, 32, 1024, true)
	r.module = m
	err = r.try("relay4", [3]int{1, 1, 1}, [3]int{256, 1, 1}, ring4, p.params())
	var fault *Fault
	if !errors.As(err, &fault) || !strings.Contains(fault.What, "before griddepcontrol.wait") {
		t.Error(err)
	}
	r.after("relay4", [3]int{1, 1, 1}, [3]int{256, 1, 1}, ring4, p.params())
}

// A kernel may read before it waits what those before the last wrote, if the last waited before it let others begin.
func TestWhatWasWaitedForMayBeRead(t *testing.T) {
	const head = ".version 7.8\n.target sm_90\n.address_size 64\n"
	const body = "(.param .u64 to) { .reg .b32 %r<4>; .reg .b64 %rd<4>; ld.param.u64 %rd1, [to]; mov.u32 %r1, 7; "
	const wait, begin, write, read = "griddepcontrol.wait; ", "griddepcontrol.launch_dependents; ", "st.global.u32 [%rd1], %r1; ", "ld.global.u32 %r2, [%rd1]; "
	for _, c := range []struct {
		name, last, next string // kernels after one that writes
		want             bool   // a fault
	}{
		{"waits and begins", wait + begin, read + wait, false},
		{"waits and ends", wait, read + wait, false},
		{"begins and waits", begin + wait, read + wait, true},
		{"writes itself", wait + begin + write, read + wait, true},
		{"begins and waits before it is read", begin + wait, wait + read, false},
	} {
		m, err := Parse(head + ".visible .entry first" + body + wait + write + "ret; }\n.visible .entry last" + body + c.last + "ret; }\n.visible .entry next" + body + c.next + "ret; }\n")
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{TB: t, m: NewMachine(Options{}), module: m}
		to := r.zeros(4)
		for i, name := range []string{"first", "last", "next"} {
			err = r.m.Launch(Launch{Kernel: m.Kernel(name), Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Params: binary.LittleEndian.AppendUint64(nil, to), Dependent: true})
			if (err != nil) != (c.want && i == 2) {
				t.Errorf("%s: kernel %s: %v", c.name, name, err)
			}
		}
	}
}

// Nor may a kernel end that has waited for none: who waits for it would not wait for those before.
func TestKernelWithoutGridWaitIsFound(t *testing.T) {
	m, err := Parse(".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry idle() { ret; }\n")
	if err != nil {
		t.Fatal(err)
	}
	l := Launch{Kernel: m.Kernel("idle"), Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}}
	if err := NewMachine(Options{}).Launch(l); err != nil {
		t.Error(err)
	}
	l.Dependent = true
	var fault *Fault
	if err := NewMachine(Options{}).Launch(l); !errors.As(err, &fault) || !strings.Contains(fault.What, "no thread does griddepcontrol.wait") {
		t.Errorf("error %v", err)
	}
}

// An address that is four bytes too high is a fault or gives other results: every few loads of some
// kernels.
func TestIndicesOffByOneAreFound(t *testing.T) {
	address := regexp.MustCompile(`(?m)^\tld\.(global|shared)[^;]*\[%[a-z]+\d+(\+-?\d+)?\]`)
	for _, kernel := range []string{"norm", "swigluQ", "deltaRecur", "relay4"} {
		text, seen := kernelText(t, kernel), 0
		for i, at := range address.FindAllStringIndex(text, -1) {
			if i%5 != 0 {
				continue
			}
			moved := func(by int) string {
				base, offset, _ := strings.Cut(text[at[0]:at[1]-1], "+")
				n, _ := strconv.Atoi(offset)
				return fmt.Sprintf("%s%s+%d]%s", text[:at[0]], base, n+by, text[at[1]:])
			}
			if plant(t, scenes[kernel], moved(1<<30), 0) == nil {
				continue // the scene does not come by
			}
			seen++
			if err := plant(t, scenes[kernel], moved(4), 0); err == nil {
				t.Errorf("%s: %s four bytes on: not found", kernel, text[at[0]:at[1]])
			}
		}
		if seen == 0 {
			t.Errorf("%s: %d accesses were tried", kernel, seen)
		}
	}
}

// Partial sums that are added in another order have other bits, and a lane that takes those of
// another lane too.
func TestOtherOrdersOfSumsAreFound(t *testing.T) {
	shuffle := regexp.MustCompile(`(shfl\.sync\.bfly\.b32 \t%r\d+\|%p\d+, %r\d+, )(%r\d+)`)
	for _, kernel := range []string{"norm", "deltaMix"} {
		text := kernelText(t, kernel)
		at := shuffle.FindAllStringSubmatchIndex(text, -1)
		first, last := text[at[0][4]:at[0][5]], text[at[3][4]:at[3][5]]
		swapped := text[:at[0][4]] + last + text[at[0][5]:at[3][4]] + first + text[at[3][5]:]
		if err := plant(t, scenes[kernel], swapped, 0); !errors.Is(err, errDiffers) {
			t.Errorf("%s with distances of shuffles the other way round: %v", kernel, err)
		}
		wrong := text[:at[0][4]] + last + text[at[0][5]:]
		if err := plant(t, scenes[kernel], wrong, 0); !errors.Is(err, errDiffers) {
			t.Errorf("%s with a shuffle from another lane: %v", kernel, err)
		}
	}
}
