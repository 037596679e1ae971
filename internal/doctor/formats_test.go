package doctor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/golden"
)

// foreignTiny is the trained model with each matrix in the layout that choose returns, as files; ""
// leaves it unchanged.
func foreignTiny(t *testing.T, choose func(module string) string) map[string]string {
	t.Helper()
	files := editTiny(t, asIs, nil)
	from := openEdited(t, files)
	layouts := golden.Layouts()
	var decls []checkpoint.Decl
	var contents [][]byte
	coded := func(module string) bool { return from.Has(module+".scales") && choose(module) != "" }
	for _, name := range from.Tensors() {
		module := name[:max(strings.LastIndexByte(name, '.'), 0)]
		if coded(module) && !strings.HasSuffix(name, ".scales") {
			continue
		}
		x, err := from.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		if !coded(module) {
			decls, contents = append(decls, checkpoint.Decl{Name: name, Type: x.Type, Shape: x.Shape}), append(contents, x.Data)
			continue
		}
		rows, cols := x.Shape[0], x.Shape[1]*64
		m, err := from.Matrix(module, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		values := make([]float32, rows*cols)
		for r := range rows {
			m.Row(values[r*cols:][:cols], r)
		}
		l := layouts[slices.IndexFunc(layouts, func(l golden.Layout) bool { return l.Name == choose(module) })]
		parts, _ := l.Encode(values, rows, cols)
		for _, p := range parts {
			decls, contents = append(decls, checkpoint.Decl{Name: module + p.Suffix, Type: p.Type, Shape: p.Shape}), append(contents, p.Data)
		}
	}
	files["model.safetensors"] = golden.Tensors(t, decls, contents, from.Metadata(from.Files()[0]))
	return files
}

// TestExamineFoldersOfOtherTools inspects and measures a folder that mixes formats of other tools: each
// part is listed with its format, and the head is sound.
func TestExamineFoldersOfOtherTools(t *testing.T) {
	c := openEdited(t, foreignTiny(t, func(module string) string {
		switch {
		case strings.Contains(module, "mtp.") && strings.Contains(module, ".mlp."):
			return "gptq, second version"
		case strings.Contains(module, ".self_attn."):
			return "fp8 by row"
		case strings.Contains(module, ".linear_attn.in_proj_qkv"):
			return "int-quantized"
		case strings.Contains(module, ".mlp."):
			return "pack-quantized, 8 bits by row"
		}
		return ""
	}))
	facts, m, b := load(t, c)
	table := facts.Table()
	for _, want := range []string{"int8 in groups of 128", "int8 with zero points in groups of 32", "fp8 in blocks of", "affine 8 bits in groups of 64"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in\n%s", want, table)
		}
	}
	r, err := Examine(t.Context(), facts, m, b, ExamineOptions{Prompts: prompts[:4], Tokens: 24, Limit: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	if rate := r.used().Rates[0]; !r.Healthy || rate < 0.6 || r.Perplexity < 40 || r.Perplexity > 80 {
		t.Errorf("healthy %v, %q, perplexity %.1f, the first draft token is accepted at %.3f of the positions", r.Healthy, r.Verdict, r.Perplexity, rate)
	}
}

// TestInspectNamesTransformedInputs names act-orders and rotations part by part.
func TestInspectNamesTransformedInputs(t *testing.T) {
	c := openEdited(t, foreignTiny(t, func(module string) string {
		switch {
		case strings.Contains(module, "mtp."):
			return ""
		case strings.Contains(module, ".self_attn."):
			return "gptq with act-order"
		case strings.Contains(module, ".mlp."):
			return "paroquant"
		}
		return ""
	}))
	facts := Inspect(c, InspectOptions{Template: template})
	if !facts.Loadable {
		t.Fatalf("cannot be loaded: %+v", facts.Problems)
	}
	want := map[string]string{
		"attention": "int4 with zero points in groups of 32, act-order", "mlp": "int4 with zero points in groups of 128, rotated inputs",
		"delta": "affine 8 bits in groups of 64", "mtp head": "affine 8 bits in groups of 64",
	}
	for line := range strings.Lines(facts.Table()) {
		part := strings.TrimSpace(line[:min(nameWidth, len(line))])
		if encoding, ok := want[part]; ok && strings.HasSuffix(strings.TrimSpace(line), "  "+encoding) {
			delete(want, part)
		}
	}
	if len(want) > 0 {
		t.Errorf("%v is not in\n%s", want, facts.Table())
	}
}
