//go:build !cuda

package cuda

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io/fs"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/cuda/drivertest"
	"github.com/foretoken/foretoken/internal/dtype"
)

// fault is a change of a kernel's text.
type fault struct {
	name, module, kernel string
	check                string // of the suite, that finds it; or "pass", "layer" or one of teams
	what                 string // a pattern
	n                    int    // which of those that it matches
	with                 string // what stands there instead
}

// plant changes the text.
func (f *fault) plant(t *testing.T, text string) string {
	t.Helper()
	from := strings.Index(text, ".entry "+f.kernel+"(")
	if from < 0 {
		t.Fatalf("%s has no %s", f.module, f.kernel)
	}
	body := text[from:]
	if end := strings.Index(body, "\n}\n"); end >= 0 {
		body = body[:end]
	}
	pattern := regexp.MustCompile(f.what)
	all := pattern.FindAllStringIndex(body, -1)
	if len(all) <= f.n {
		t.Fatalf("%s: %s has %d of %s", f.name, f.kernel, len(all), f.what)
	}
	at := all[f.n]
	changed := body[:at[0]] + pattern.ReplaceAllString(body[at[0]:at[1]], f.with) + body[at[1]:]
	return text[:from] + changed + text[from+len(body):]
}

// teams are products that find faults, whose sums or whose inputs go from warp to warp.
var teams = map[string]struct {
	rows, bits int
	format     dtype.Format
}{
	"product":     {5, 4, dtype.Affine},
	"few":         {2, 4, dtype.Affine},
	"narrow":      {1, 0, dtype.Affine},
	"nano few":    {2, 4, dtype.NVFP4},
	"nano many":   {33, 4, dtype.NVFP4},
	"micro":       {5, 4, dtype.MXFP4},
	"micro panel": {20, 4, dtype.MXFP4},
	"levels few":  {2, 4, dtype.IQ4NL},
	"levels many": {40, 4, dtype.IQ4NL},
	"IQ3_S one":   {1, 3, dtype.IQ3S},
	"IQ3_S":       {5, 3, dtype.IQ3S},
	"IQ2_XS":      {20, 2, dtype.IQ2XS},
	"IQ2_S many":  {40, 2, dtype.IQ2S},
	"Q2_K":        {5, 2, dtype.Q2K},
}

// packed is a text as ptxpack.Unpack reads it, each line a template of its own: compressing it would take longer than the test.
func packed(tb testing.TB, text string) []byte {
	tb.Helper()
	lines := strings.Count(text, "\n") + 1
	data := binary.LittleEndian.AppendUint64(nil, uint64(lines)) // and no registers
	data = append(append(data, make([]byte, 2*lines)...), text...)
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.NoCompression)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := z.Write(data); err != nil {
		tb.Fatal(err)
	}
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// Kernels with a fault do not pass: the suite finds other bits, or the interpreter what no kernel may
// do.
func TestPlantedFaultsAreFound(t *testing.T) {
	want, _ := denseLayer(t, backendtest.CPU(t, backend.Options{Threads: 1}))
	if got, err := denseLayer(t, open(t, Options{})); err != nil || !slices.Equal(got, want) {
		t.Fatalf("a layer of one row without a fault: %v", err)
	}
	const load, barrier, arrival = `(ld\.global\S*\s+[^\[\n]*\[%rd\d+)\]`, `\n\s*(bar|barrier)\.(cta\.)?sync\s[^\n]*`, `\n\s*barrier\.cta\.arrive\s[^\n]*`
	for _, f := range []fault{
		{"an index off by one", "rowwise", "rms_norm", "RMSNorm", load, 0, "$1+4]"},
		{"an index off by one", "rowwise", "gather", "Gather", load, 0, "$1+4]"},
		{"an index off by one", "product", "relay_4_64_1", "product", load, 6, "$1+4]"},
		{"an index off by one", "few", "few_4_64_2", "few", load, 4, "$1+4]"},
		{"an index off by one", "top", "top_maxima", "Top", load, 0, "$1+4]"},
		{"an index off by one", "rowwise", "convolve", "Convolve", load, 0, "$1+4]"},
		{"a window for what is ahead", "attendblock", "attend_block_halves", "Attend inside blocks", `(ld\.param\.v2\.u32\s+)\{(%r\d+), (%r\d+)\}(, \[%rd\d+\+48\])`, 0, "$1{$3, $2}$4"},
		{"squares added in another order", "rowwise", "rms_norm", "RMSNorm", `(\[%r\d+)\+-1024\]([^\[]*)(\[%r\d+)\+-768\]`, 0, "$1+-768]$2$3+-1024]"},
		{"a missing barrier", "rowwise", "rms_norm", "RMSNorm", barrier, 0, ""},
		{"a missing barrier", "rowwise", "layer_norm", "LayerNorm", barrier, 1, ""},
		{"a missing barrier", "product", "relay_4_64_1", "product", barrier, 0, ""},
		{"a missing barrier", "few", "few_4_64_2", "few", barrier, 0, ""},
		{"a missing arrival", "product", "relay_4_64_1", "product", arrival, 0, ""},
		{"a missing arrival", "few", "few_4_64_2", "few", arrival, 0, ""},
		{"an arrival elsewhere", "product", "relay_4_64_1", "product", `barrier\.cta\.arrive\s+%r\d+`, 0, "barrier.cta.arrive 0"},
		{"lanes that a barrier leaves out", "few", "few_4_64_2", "few", `bar\.warp\.sync\s+-1`, 0, "bar.warp.sync 65535"},
		{"a barrier of fewer threads", "rowwise", "rms_norm", "RMSNorm", `bar\.sync\s+0;`, 0, "bar.sync 0, 96;"},
		{"a copy that is not waited for", "micro", "panel_4_64_3_narrow", "micro panel", `cp\.async\.wait_group\s+3;`, 0, "cp.async.wait_group 4;"},
		{"a shuffle from another lane", "rowwise", "rms_norm", "RMSNorm", `(shfl\.sync\.bfly\.b32\s+%r\d+\|%p\d+, %r\d+, )%r\d+`, 0, "${1}3"},
		{"a missing barrier", "narrow", "narrow_f32", "narrow", barrier, 1, ""},
		{"a missing barrier", "nanofew", "few_4_64_2", "nano few", barrier, 0, ""},
		{"a missing barrier", "nano", "many_4_64_2", "nano many", barrier, 0, ""},
		{"a code without its sign", "nano", "many_4_64_2", "nano many", `-2139062144`, 1, "8421504"},
		{"half of a scale", "plain", "halve", "nano many", `0f42800000`, 0, "0f42000000"},
		{"a missing barrier", "micro", "relay_4_64_1", "micro", barrier, 0, ""},
		{"no wait for copies", "micro", "panel_4_64_3_narrow", "micro panel", `cp\.async\.wait_group\s+3;`, 0, ""},
		{"halves of the table swapped", "levelsfew", "few_4_64_2", "levels few", `prmt\.b32\s+(%r\d+), (%r\d+), (%r\d+),`, 0, "prmt.b32 $1, $3, $2,"},
		{"a missing barrier", "levels", "many_4_64_2", "levels many", barrier, 0, ""},
		{"a missing barrier", "supergrid", "one_iq3s", "IQ3_S one", barrier, 0, ""},
		{"no signs", "supergrid", "relay_iq3s_1", "IQ3_S", `xor\.b32`, 0, "and.b32"},
		{"an index off by one", "supergrid", "relay_iq3s_1", "IQ3_S", `(ld\.shared\.v2\.u32\s+[^\[\n]*\[%r\d+)\]`, 0, "$1+8]"},
		{"a missing barrier", "supergrid", "panel_iq2xs", "IQ2_XS", barrier, 1, ""},
		{"a missing barrier", "supergrid", "many_iq2s", "IQ2_S many", barrier, 1, ""},
		{"a factor without a bit", "supersmall", "relay_q2k_1", "Q2_K", `252645135`, 0, "117901063"},
		{"no wait for copies", "narrow", "narrow_f32", "narrow", `cp\.async\.wait_group\s+6;`, 1, ""},
		{"no wait for the kernels before", "rowwise", "rms_norm", "pass", `griddepcontrol\.wait;`, 0, ""},
		{"no wait for the kernels before", "few", "row_4_64", "layer", `griddepcontrol\.wait;`, 1, ""},
		{"a missing barrier", "few", "row_4_64", "layer", barrier, 0, ""},
		{"a missing barrier", "few", "gated_4_64", "layer", `\n\s*barrier\.cta\.sync\s[^\n]*`, 1, ""},
		{"a code in another place", "few", "gated_4_64", "layer", `st\.shared\.u32\s+\[(%r\d+)\]`, 0, "st.shared.u32 [$1+4]"},
		{"a missing fence", "few", "gated_4_64", "layer", `atom\.acq_rel`, 0, "atom.relaxed"},
		{"a missing reset", "few", "gated_4_64", "layer", `(atom\.acq_rel[^;]*;(?s:.*?))\n\s*st\.global\.u32[^\n]*`, 0, "$1"},
	} {
		t.Run(f.name+" in "+f.kernel, func(t *testing.T) {
			files := fstest.MapFS{}
			texts := os.DirFS("kernels")
			names, err := fs.Glob(texts, "*.ptx.pack")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				data, err := fs.ReadFile(texts, name)
				if err != nil {
					t.Fatal(err)
				}
				if name == f.module+".ptx.pack" {
					text, err := readText(texts, f.module)
					if err != nil {
						t.Fatal(err)
					}
					data = packed(t, f.plant(t, text))
				}
				files[name] = &fstest.MapFile{Data: data}
			}
			dev, info := openDriver(t, drivertest.Options{})
			b, err := New(dev, info, Options{Kernels: files, Slab: 1, Staging: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close() //nolint:errcheck // the device may be lost
			found := false
			switch f.check {
			case "pass":
				w := newTower(t, b)
				w.space(2)
				_, err := w.try([]int32{1, 2}, []int32{1}, nil)
				found = err != nil
			case "layer":
				got, err := denseLayer(t, b)
				found = err != nil || !slices.Equal(got, want)
			default:
				if _, ok := teams[f.check]; ok {
					want, _ := teamwork(t, backendtest.CPU(t, backend.Options{Threads: 1}), f.check)
					got, err := teamwork(t, b, f.check)
					found = err != nil || !slices.Equal(got, want)
					break
				}
				found = len(backendtest.Brief(t).Only(f.check).Check(b)) > 0
			}
			if !found {
				t.Error("not found")
			}
		})
	}
}

// teamwork is a product of teams.
func teamwork(t *testing.T, b backend.Backend, name string) ([]float32, error) {
	t.Helper()
	w, rng := newTower(t, b), rand.New(rand.NewPCG(1, 2))
	team := teams[name]
	rows, wide := team.rows, backend.Weight(nil)
	if team.format == dtype.Affine {
		wide = w.load(randomMatrix(t, rng, 48, 64*20, team.bits, 64, dtype.BF16))
	} else {
		wide = w.load(randomBlocks(t, rng, team.format, 48, 64*20))
	}
	x, y := w.alloc(rows, 64*20), w.alloc(rows, 48)
	list := make([]float32, rows*64*20)
	for i := range list {
		list[i] = float32(i%17) - 8.5
	}
	if err := b.Write(x, list); err != nil {
		t.Fatal(err)
	}
	b.MatMul(x, backend.Product{Dst: y, W: wide})
	return b.Host(y)
}

// denseLayer is one row through norm, gate and the products around them, twice, with other numbers the second time.
func denseLayer(t *testing.T, b backend.Backend) ([]float32, error) {
	t.Helper()
	const cols, wide, outs = 4096, 64, 320
	w, rng := newTower(t, b), rand.New(rand.NewPCG(1, 2))
	matrix := func(rows, cols int) backend.Weight {
		return w.load(randomMatrix(t, rng, rows, cols, 4, 64, dtype.BF16))
	}
	gate, up, down := matrix(wide, cols), matrix(wide, cols), matrix(outs, wide)
	x, gain, h, g, u, y := w.alloc(1, cols), w.alloc(1, cols), w.alloc(1, cols), w.alloc(1, wide), w.alloc(1, wide), w.alloc(1, outs)
	b.Fill(gain, 0.75)
	list := make([]float32, cols)
	for range 2 {
		for i := range list {
			list[i] = float32(rng.NormFloat64())
		}
		if err := b.Write(x, list); err != nil {
			return nil, err
		}
		b.Pass(backend.Pass{Of: w, Batch: []backend.Seq{{N: 1}}}, func() {
			b.RMSNorm(h, x, gain, 1e-6)
			b.MatMul(h, backend.Product{Dst: g, W: gate}, backend.Product{Dst: u, W: up})
			b.GLU(g, g, u, backend.SiLU)
			b.MatMul(g, backend.Product{Dst: y, W: down})
			b.RMSNorm(h, x, gain, 1e-6)
			b.MatMul(h, backend.Product{Dst: u, W: up})
		})
	}
	return b.Host(y)
}
