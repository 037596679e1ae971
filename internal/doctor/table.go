package doctor

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/offload"
	"github.com/foretoken/foretoken/internal/state"
)

// Table is the facts for people: lines of plain text without control characters.
func (f *Facts) Table() string {
	t := &table{}
	t.row("model", "%s", f.Name)
	family := f.Family
	if f.Model != nil && !f.isDrafter() {
		family += ", model_type " + f.Model.ModelType
	}
	if family != "" {
		t.row("family", "%s", family)
	}
	t.row("files", "%s of weights, %s", counted(f.Files, "file", "files"), bytesText(f.Bytes))
	if f.Model != nil {
		if !f.isDrafter() {
			t.sizes(f.Model)
		}
		t.drafter(f)
		t.parts(f.Model)
	}
	if !f.isDrafter() {
		if f.Model != nil {
			t.head(f.Model)
			t.vision(f)
		}
		t.text(f)
	}
	if m := f.Memory; m != nil {
		t.line("")
		t.memory(f)
	}
	if m := f.Memory; m != nil && !f.isDrafter() {
		t.row("serving", "up to %s of KV memory by default: %d sequences of %d tokens, or half of the free memory if that is less",
			bytesText(m.ServeKV), offload.DefaultBatch, min(offload.DefaultContext, f.Model.Context))
	}
	for _, d := range f.Devices {
		t.row("on "+d.Device, "%s", d.Where)
	}
	t.line("")
	t.problems(f.Problems)
	if !f.Loadable {
		t.line(map[bool]string{true: "The drafter cannot be loaded.", false: "The model cannot be loaded."}[f.isDrafter()])
	} else if len(f.Problems) == 0 {
		t.line("No defects found in the files.")
	}
	return t.String()
}

// table collects lines of a name and a description.
type table struct{ strings.Builder }

const nameWidth = 11

// row writes a line, or more than one if it gets long: words move to the next as a whole.
func (t *table) row(name, format string, args ...any) {
	const width = 100
	line := pad(name, nameWidth)
	for i, word := range strings.Fields(printable(fmt.Sprintf(format, args...))) {
		if i > 0 && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			t.line(line)
			line = pad("", nameWidth)
		}
		line += " " + word
	}
	t.line(line)
}

func (t *table) line(text string) { t.WriteString(strings.TrimRight(text, " ") + "\n") }

func (t *table) sizes(n *weights.Survey) {
	kinds := fmt.Sprintf("%d attention", n.AttentionLayers)
	if n.DeltaLayers > 0 {
		kinds = fmt.Sprintf("%d Gated DeltaNet, %s", n.DeltaLayers, kinds)
	}
	t.row("layers", "%d: %s%s", n.AttentionLayers+n.DeltaLayers, kinds, windows(n.Layout.Layers))
	tied := "separate output matrix"
	if n.Tied {
		tied = "embedding tied to the output"
	}
	t.row("sizes", "hidden %d, vocabulary %d, context %d; %s", n.Hidden, n.Vocab, n.Context, tied)
	active := ""
	if n.Experts > 0 {
		active = fmt.Sprintf(", %s active: %d of %d experts a layer", countText(n.Active), n.ActiveExperts, n.Experts)
	}
	t.row("parameters", "%s%s", countText(n.Parameters), active)
}

// windows says of how many tokens layers have a KV cache, if some have windows.
func windows(layers []state.Layer) string {
	window, sliding, others := 0, 0, 0
	for _, y := range layers {
		if y == nil {
			others++
		} else if n := y.Sees(); n > 0 {
			window, sliding = n, sliding+1
		}
	}
	if window == 0 {
		return ""
	}
	text := fmt.Sprintf("; KV cache of %d tokens in %d, of all tokens in %d", window, sliding, len(layers)-sliding-others)
	if others > 0 {
		text += fmt.Sprintf(", that of other layers in %d", others)
	}
	return text
}

// parts is the table of bits by part.
func (t *table) parts(n *weights.Survey) {
	t.line("")
	t.line(fmt.Sprintf("%s %10s %10s %8s %12s  %s", pad("part", nameWidth), "tensors", "parameters", "size", "bits/weight", "encoding"))
	for _, p := range n.Parts {
		bits := ""
		if p.Parameters > 0 {
			bits = fmt.Sprintf("%.2f", 8*float64(p.Bytes)/float64(p.Parameters))
		}
		encodings := strings.Join(p.Encodings, "; ")
		if p.Name == "vision" && n.Tower.Layers == 0 {
			encodings += " (not used)"
		}
		t.line(fmt.Sprintf("%s %10d %10s %8s %12s  %s", pad(p.Name, nameWidth), p.Tensors, countText(p.Parameters), bytesText(p.Bytes), bits, encodings))
	}
	if len(n.Unknown) > 0 {
		t.row("unknown", "%s: %s", counted(len(n.Unknown), "tensor", "tensors"), some(n.Unknown))
	}
	t.line("")
	if n.LayerGain != 0 {
		t.row("norms", "of the layers %s, mean gain %.2f", n.LayerNorms, n.LayerGain)
	}
}

// memory is the row about memory.
func (t *table) memory(f *Facts) {
	m, drafts, kv := f.Memory, "head", "keys and values"
	if m.KVBits > 0 {
		kv = fmt.Sprintf("keys and values of %d bits", m.KVBits)
	}
	text := fmt.Sprintf("%s for %s of %d tokens: weights %s, %s %s", bytesText(m.Total), counted(m.Batch, "sequence", "sequences"), m.Context, bytesText(m.Weights), kv, bytesText(m.KV))
	if f.Drafter != "" {
		drafts = "head and drafter"
	}
	if !f.isDrafter() {
		text += fmt.Sprintf(", recurrent states %s, %s %s", bytesText(m.Recurrent), drafts, bytesText(m.Head))
	}
	t.row("memory", "%s", text)
}

// drafter is about a drafter, alone or with its model.
func (t *table) drafter(f *Facts) {
	d := f.Model.Drafter
	if d == nil {
		return
	}
	if f.Drafter != "" {
		t.row("drafter", "%s: %s", d.Kind, f.Drafter)
	} else {
		t.row("drafter", "%s of %s, %s parameters", d.Kind, counted(f.Model.AttentionLayers, "layer", "layers"), countText(f.Model.Parameters))
		fits := fmt.Sprintf("hidden size %d", d.TargetHidden)
		if d.Vocab > 0 {
			fits += fmt.Sprintf(", vocabulary %d", d.Vocab)
		}
		if d.TargetLayers > 0 {
			fits += fmt.Sprintf(", %d layers", d.TargetLayers)
		}
		if d.Made != "" {
			fits += ", made for " + d.Made
		}
		t.row("fits", "models with %s", fits)
	}
	how := "one token per pass"
	if d.Block > 0 {
		how = fmt.Sprintf("blocks of up to %d rows, mask token %d", d.Block, *d.Mask)
	}
	if d.DraftVocab < d.Vocab {
		how += fmt.Sprintf(", draft vocabulary %d", d.DraftVocab)
	}
	if d.Window > 0 {
		how += fmt.Sprintf(", windows of %d tokens", d.Window)
	}
	t.row("drafts", "%s", how)
	if len(d.Taps) > 0 {
		t.row("reads", "inputs of layers %s of the model", strings.Trim(strings.ReplaceAll(fmt.Sprint(d.Taps), " ", ", "), "[]"))
	}
	own := map[[2]bool]string{{false, false}: "the model's", {true, true}: "its own", {true, false}: "its own embedding, the model's output matrix", {false, true}: "the model's embedding, its own output matrix"}
	t.row("matrices", "embedding and output matrix: %s", own[[2]bool{d.OwnEmbedding, d.OwnOutput}])
}

func (t *table) head(n *weights.Survey) {
	h := &n.Head
	if !h.Present {
		promise := "config.json declares none"
		if h.Promised > 0 {
			promise = "although config.json declares one"
		}
		t.row("mtp head", "none, %s", promise)
		return
	}
	where := "inline"
	if h.Sidecar {
		where = "beside the weights"
	}
	state := "complete"
	if len(h.Missing) > 0 {
		state = "incomplete: without " + some(h.Missing)
	}
	t.row("mtp head", "%s, %s in %s", state, where, strings.Join(h.Files, ", "))
	if h.Origin != "" {
		t.row("", "fetched from %s", h.Origin)
	}
	mode := "after the final norm (post_norm)"
	if h.PreNorm {
		mode = "before the final norm (pre_norm, by config.json)"
	}
	t.row("", "takes the hidden state %s", mode)
	for _, x := range h.Norms {
		t.line(fmt.Sprintf("%s %s %s, mean %.3f", pad("", nameWidth), pad(printable(strings.TrimSuffix(x.Tensor, ".weight")), 38), x.Convention, x.Mean))
	}
}

func (t *table) text(f *Facts) {
	if k := f.Tokenizer; k != nil {
		stops := make([]string, 0, len(k.Stop))
		for _, s := range k.Stop {
			stops = append(stops, strings.TrimSpace(fmt.Sprintf("%d %s", s.ID, s.Token)))
		}
		end := "no token ends a text"
		if len(stops) > 0 {
			end = "texts end with " + strings.Join(stops, ", ")
		}
		t.row("tokenizer", "%d tokens; %s", k.Size, end)
	}
	p := f.Template
	if p == nil {
		t.row("template", "none")
		return
	}
	thinking := "no thinking"
	switch {
	case p.Switch && p.Thinking:
		thinking = "thinks unless told not to"
	case p.Switch:
		thinking = "thinks if told to"
	case p.Thinking:
		thinking = "always thinks"
	}
	tools := "no tools"
	if p.Tools {
		tools = "tools"
	}
	pictures := "no images"
	if p.Pictures {
		pictures = "images"
	}
	t.row("template", "%s, %s, %s", thinking, tools, pictures)
}

func (t *table) problems(list []Problem) {
	for _, p := range list {
		kind := "warning"
		if p.Fatal {
			kind = "problem"
		}
		t.row(kind, "%s", p.What)
		t.row("  remedy", "%s", p.Remedy)
	}
}

// countText is a number of parameters with three digits that count.
func countText(n int64) string {
	switch x := float64(n); {
	case n >= 1e9:
		return fmt.Sprintf("%.2f G", x/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.2f M", x/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f k", x/1e3)
	}
	return fmt.Sprint(n)
}

// bytesText is a size in units of a thousand, as disks are sold.
func bytesText(n int64) string {
	switch x := float64(n); {
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", x/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", x/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f kB", x/1e3)
	}
	return fmt.Sprintf("%d B", n)
}

// printable is text from a file without characters that would steer a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, text)
}

func pad(text string, columns int) string {
	return text + strings.Repeat(" ", max(columns-utf8.RuneCountInString(text), 0))
}
