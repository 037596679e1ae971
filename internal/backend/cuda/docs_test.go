package cuda

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
)

var record = flag.Bool("record", false, "write docs/kernels.md anew")

// header is what the source of a kernel says of it, after a line that begins with "// Kernel".
type header struct {
	names []string // with capitals for the format and the shape
	text  string
	file  string
}

// spelled is what the capitals of a name stand for.
var spelled = strings.NewReplacer(
	"BITS", `\d`, "COLUMNS", `\d+`, "STRIPS", `\d`, "ROWS", `\d`, "BYTES", `\d`, "FORMAT", `[a-z]\w*`, "SHAPE", `\d(_[a-z]+)?`,
	"TYPE", `(bf16|f16|f32|floats|halves)`,
)

// matches are the kernels that a name stands for.
func matches(name string, kernels []string) (found []string) {
	pattern := regexp.MustCompile("^" + spelled.Replace(name) + "$")
	for _, k := range kernels {
		if pattern.MatchString(k) {
			found = append(found, k)
		}
	}
	return found
}

// headers are those of all sources, in the order of files.
func headers(t *testing.T) (list []header) {
	t.Helper()
	files := kernelFiles(t, ".cu", ".cuh")
	for _, file := range slices.Sorted(maps.Keys(files)) {
		begun := false
		for line := range strings.Lines(string(files[file])) {
			text, comment := strings.CutPrefix(strings.TrimSpace(line), "// ")
			if rest, ok := strings.CutPrefix(text, "Kernel "); ok && comment {
				names, what, _ := strings.Cut(rest, ": ")
				list = append(list, header{names: strings.Split(names, ", "), text: strings.ToUpper(what[:1]) + what[1:], file: file})
				begun = true
				continue
			}
			begun = begun && comment
			if begun {
				h := &list[len(list)-1]
				h.text += " " + strings.TrimSpace(text)
			}
		}
	}
	for i := range list {
		for _, part := range []string{"Layout", "Grid", "Sums"} {
			h := &list[i]
			if !strings.Contains(h.text, " "+part+": ") {
				t.Errorf("kernels/%s: the header of %v does not say %s", h.file, h.names, part)
			}
			h.text = strings.Replace(h.text, " "+part+": ", " *"+part+":* ", 1)
		}
	}
	return list
}

// entries are the kernels of all modules.
func entries(t *testing.T) (list []string) {
	t.Helper()
	for name := range kernelFiles(t, ".ptx.pack") {
		text, err := readText(os.DirFS("kernels"), strings.TrimSuffix(name, ".ptx.pack"))
		if err != nil {
			t.Fatal(err)
		}
		list = slices.AppendSeq(list, maps.Keys(paramEnds(text)))
	}
	return list
}

// Every kernel has one header, and every header and every rule names kernels that exist.
func TestKernelsHaveHeaders(t *testing.T) {
	kernels, known := entries(t), map[string]int{}
	for _, h := range headers(t) {
		for _, name := range h.names {
			found := matches(name, kernels)
			if len(found) == 0 {
				t.Errorf("kernels/%s has a header for %s, which does not exist", h.file, name)
			}
			for _, k := range slices.Compact(slices.Sorted(slices.Values(found))) {
				known[k]++
			}
		}
	}
	for _, k := range kernels {
		if known[k] != 1 {
			t.Errorf("%s has %d headers that begin with \"// Kernel\"", k, known[k])
		}
	}
	for _, row := range slices.Concat(ruleRows(productRules), ruleRows(attendRules), ruleRows(deltaRules), ruleRows(expertRules), ruleRows(choiceRules)) {
		for name := range strings.SplitSeq(row[0], ", ") {
			if !strings.Contains(name, " ") && name != "" && len(matches(name, kernels)) == 0 {
				t.Errorf("a rule names %s, which does not exist", name)
			}
		}
	}
}

// A rule launches the kernels that it names.
func TestRulesLaunchWhatTheyName(t *testing.T) {
	b, _ := openIdle(t)
	taken, rng := map[*rule[[]product]]bool{}, rand.New(rand.NewPCG(5, 6))
	matrices := map[string]dtype.Matrix{
		"groups of 16": randomMatrix(t, rng, 32, 512, 4, 16, dtype.BF16), "groups of 64": randomMatrix(t, rng, 32, 512, 4, 64, dtype.BF16),
		"8 bits": randomMatrix(t, rng, 32, 512, 8, 64, dtype.BF16), "f32": randomMatrix(t, rng, 32, 512, 0, 0, dtype.F32),
	}
	for _, f := range append(superFormats, dtype.Q8_0, dtype.IQ4NL, dtype.MXFP4, dtype.NVFP4) {
		matrices[f.String()] = randomBlocks(t, rng, f, 32, 512)
	}
	for name, m := range matrices {
		for _, compute := range []backend.Compute{backend.Int8, backend.Float32} {
			loaded, err := b.Load(compute, m)
			if err != nil {
				t.Fatal(err)
			}
			w := loaded.(*weight)
			for _, rows := range []int{1, 3, 7, 12, 20, 40} {
				for _, tiles := range []int{w.Layout.Tiles, 132, 2000} {
					b.passes.recording = &recording{}
					list := []product{{w: w, rows: rows, tiles: tiles, in: input{rows: w.Cols(), quantized: quantized{rounding: w.wants(), stride: w.Cols()}}}}
					list[0].narrow = b.narrow(&list[0])
					r := find(b, productRules, list)
					taken[r] = true
					b.multiply(list...)
					for _, op := range b.passes.recording.ops {
						if r.kernels == "" {
							break // pieces of fewer rows, each by its own rule
						}
						launched, first := op.launch.Function.Name(), strings.Split(r.kernels, ", ")[0] // others take operations before them over
						if len(matches(first, []string{launched})) == 0 {
							t.Errorf("%s, %d rows, %d tiles: the rule of %s launches %s", name, rows, tiles, r.kernels, launched)
						}
					}
					b.passes.recording = nil
				}
			}
			b.Unload(w)
		}
	}
	for i := range productRules {
		if r := &productRules[i]; r.most == 0 && !taken[r] {
			t.Errorf("no product of the test takes the rule of %s", r.kernels)
		}
	}
}

// ruleRows are the kernels and conditions of rules.
func ruleRows[T any](rules []rule[T]) (rows [][2]string) {
	for _, r := range rules {
		var when []string
		for _, c := range r.when {
			when = append(when, c.words)
		}
		kernels := r.kernels
		if r.most > 0 {
			kernels = fmt.Sprintf("pieces of %d rows, each by its own rule", r.most)
		}
		rows = append(rows, [2]string{kernels, cmp.Or(strings.Join(when, "; "), "everything else")})
	}
	return rows
}

// ruleTable is rules as a table.
func ruleTable[T any](rules []rule[T]) string {
	var b strings.Builder
	b.WriteString("| if | kernels |\n|---|---|\n")
	for _, row := range ruleRows(rules) {
		var names []string
		for name := range strings.SplitSeq(row[0], ", ") {
			if !strings.Contains(name, " ") {
				name = "`" + name + "`"
			}
			names = append(names, name)
		}
		fmt.Fprintf(&b, "| %s | %s |\n", row[1], strings.Join(names, ", "))
	}
	return b.String()
}

// formatTable is the formats of tensors as a table, by module.
func formatTable() string {
	var b strings.Builder
	b.WriteString("| module | bits | columns of a block | scales | few | panels | relays | many |\n|---|---|---|---|---|---|---|---|\n")
	keys := slices.SortedFunc(maps.Keys(tensors), func(a, b tensorKey) int {
		return cmp.Or(cmp.Compare(tensors[a].module, tensors[b].module), cmp.Compare(a.bits, b.bits), cmp.Compare(a.group, b.group))
	})
	for _, k := range keys {
		f := tensors[k]
		scales := k.scales.String()
		switch {
		case k.zeros:
			scales += " and zero points"
		case k.kind == kernel.Biased && f.module != "symmetric":
			scales += " and biases"
		}
		var panels, relays, many []string
		for _, p := range f.panels {
			panels = append(panels, p.name)
		}
		for _, r := range f.relays {
			relays = append(relays, fmt.Sprint(r.strips))
		}
		for strips, has := range map[string]bool{"2": f.dense, "4": true, "8": f.tall} {
			if has {
				many = append(many, strips)
			}
		}
		slices.Sort(many)
		fmt.Fprintf(&b, "| `%s` | %d | %d | %s | %s | %s | %s | %s |\n", f.module, k.bits, k.group, scales,
			cmp.Or(f.few, "none"), cmp.Or(strings.Join(panels, ", "), "none"), strings.Join(relays, ", "), strings.Join(many, ", "))
	}
	return b.String()
}

// superTable is the formats in superblocks as a table.
func superTable() string {
	var b strings.Builder
	b.WriteString("| format | module | bytes of 16 outputs and 256 columns |\n|---|---|---|\n")
	forms := slices.SortedFunc(maps.Values(superForms), compareForms)
	for _, f := range append(forms, slices.SortedFunc(maps.Values(gridForms), compareForms)...) {
		fmt.Fprintf(&b, "| `%s` | `%s` | %d |\n", f.name, f.module, f.block())
	}
	return b.String()
}

func compareForms(a, b *superForm) int { return cmp.Compare(a.module+a.name, b.module+b.name) }

// document is docs/kernels.md.
func document(t *testing.T) string {
	t.Helper()
	var modules, kernels strings.Builder
	files := kernelFiles(t, ".cu")
	for _, file := range slices.Sorted(maps.Keys(files)) {
		text, _, _ := strings.Cut(string(files[file]), "\n#include")
		text = strings.Join(strings.Fields(strings.ReplaceAll(text, "// ", "")), " ")
		first, _, _ := strings.Cut(text, ". ")
		fmt.Fprintf(&modules, "| `%s` | %s |\n", strings.TrimSuffix(file, ".cu"), strings.TrimSuffix(first, "."))
	}
	for _, h := range headers(t) {
		fmt.Fprintf(&kernels, "- **`%s`** (`%s`). %s\n", strings.Join(h.names, "`, `"), h.file, h.text)
	}
	return `# CUDA kernels

This page lists the kernels of ` + "`internal/backend/cuda`" + ` and says which kernel takes which shape, format and device. It is made of
the tables in ` + "`dispatch.go` and `matmul.go`" + `, which the backend itself uses, and of the headers in ` + "`kernels/`" + `. After a change, write it
with ` + "`go test ./internal/backend/cuda -run TestKernelsAreDocumented -record`" + `. ` + "[cuda.md](cuda.md)" + ` explains the backend.

In each table, the first row whose conditions all hold decides. Capitals in the name of a kernel stand for the format and the
shape. A tile is 16 outputs (rows of a weight), a strip is 8 rows. "Shared memory is available" depends on the device: 227 KB for a block of an
H200, 99 KB for a block of a desktop GPU. Every kernel needs compute capability 8.0.

## Products with weights

` + ruleTable(productRules) + `
` + fmt.Sprintf("While a pass is recorded, a product of one row with up to %d columns includes the RMSNorm before it (`row_`, `one_`) if the row\nhas %d columns or more, or if there are at most as many tiles as multiprocessors. Two products also include the SwiGLU behind\nthem (`gated_` from %[2]d columns on, `one_`).", maxRowCols, wideRow) + `

### Formats in blocks of groups

Strips of relays and of many are the last number in the name of a kernel. A relay has the fewest strips that hold the rows. Many takes 8
strips if its last wave of blocks is nearly full, and 2 if there are fewer than six blocks for each multiprocessor.

` + formatTable() + `
### Superblocks

` + superTable() + `
## Attention

` + ruleTable(attendRules) + `
` + fmt.Sprintf("`attend_join` follows for up to %d rows only.", splitRows) + `

## Gated DeltaNet

` + ruleTable(deltaRules) + `
## Experts

` + ruleTable(expertRules) + `
The choice:

` + ruleTable(choiceRules) + `
## Modules

| module | |
|---|---|
` + modules.String() + `
## Kernels

` + kernels.String()
}

// docs/kernels.md is made of the tables and headers.
func TestKernelsAreDocumented(t *testing.T) {
	const file = "../../../docs/kernels.md"
	want := document(t)
	if *record {
		filetest.Write(t, file, want)
	}
	got := filetest.Read(t, file)
	if string(got) != want {
		t.Error("docs/kernels.md is not what dispatch.go and the headers of kernels say: run this test with -record")
	}
}
