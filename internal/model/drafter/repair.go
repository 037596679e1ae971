package drafter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// A drafter that is read in the wrong way drafts what it should not, and nothing else shows it: texts stay the same. So there
// is a way to run a drafter that is loaded as if its files said something else.

// Repair is another way to run a drafter. If drafts are accepted more often with it, its files are wrong, or are read wrongly.
type Repair struct {
	Name   string // the difference
	Kind   string // taps, norms, kind, window or position: where it is
	Cause  string // what is wrong if it helps
	Remedy string // "": the files have to be fetched again
	// Open returns the drafter that is run this way. It shares the matrices of the drafter, which must outlive it. The caller
	// closes it.
	Open func() (*Drafter, error)
}

// Repairs are the ways that are known to have been mistaken for others.
func (d *Drafter) Repairs() []Repair {
	var list []Repair
	add := func(r Repair, change func(*config), shift func(module string) float32) {
		r.Open = func() (*Drafter, error) { return d.variant(change, shift) }
		list = append(list, r)
	}
	if d.assistant != nil {
		add(Repair{
			Name: "queries at the position of the last row", Kind: "position", Remedy: "report it: some programs draft from this position, and no file of an assistant says which",
			Cause: "it was made for queries at the position before that of the token that it is fed",
		}, func(c *config) { c.itself = !c.itself }, nil)
		return list
	}
	for _, r := range d.tapRepairs() {
		add(r.Repair, func(c *config) { c.taps = r.taps }, nil)
	}
	if d.Head == nil {
		d.blockRepairs(add)
	}
	for _, s := range []struct {
		which, were string
		norm        func(module string) bool
	}{
		{"all norms", "were", func(string) bool { return true }},
		{"the norms of the layers", "were", func(m string) bool { return strings.HasPrefix(m, "layers.") }},
		{"the last norm", "was", func(m string) bool { return m == "norm" }},
	} {
		for _, by := range []float32{-1, 1} {
			name, cause := " less one", " shifted up by one"
			if by > 0 {
				name, cause = " plus one", " shifted down by one"
			}
			add(Repair{Name: s.which + name, Kind: "norms", Cause: s.which + " " + s.were + cause}, nil, func(m string) float32 {
				if s.norm(m) {
					return by
				}
				return 0
			})
		}
	}
	return list
}

// tapRepair is a Repair by other taps.
type tapRepair struct {
	Repair
	taps []int
}

// tapRepairs are the neighbors of each tap, and the other side of the final norm.
func (d *Drafter) tapRepairs() (list []tapRepair) {
	n, key := d.config().target.Layers, "aux_hidden_state_layer_ids" // which precedes the other keys
	if d.Head != nil {
		key = "eagle_" + key
	}
	moved := func(by int) []int {
		taps := slices.Clone(d.Taps)
		for i := range taps {
			taps[i] += by
		}
		return taps
	}
	remedy := func(taps []int) string {
		return fmt.Sprintf("set %q in config.json, or target_layers in a GGUF file, to %s", key, numbers(taps))
	}
	last := slices.Max(d.Taps)
	for _, by := range []int{1, -1} {
		taps := moved(by)
		if slices.Min(taps) < 0 || max(last, slices.Max(taps)) > n {
			continue
		}
		list = append(list, tapRepair{Repair{
			Name: "the inputs of layers " + numbers(taps), Kind: "taps", Remedy: remedy(taps),
			Cause: fmt.Sprintf("its taps are off by one: it was made for the inputs of layers %s of the model and gets those of %s", numbers(taps), numbers(d.Taps)),
		}, taps})
	}
	if last < n {
		return list
	}
	taps := slices.Clone(d.Taps)
	at := slices.Index(taps, last)
	if taps[at] = 2*n + 1 - last; last == n {
		return append(list, tapRepair{Repair{
			Name: "the last tap after the final norm", Kind: "taps", Cause: "its last tap has to be read after the final norm of the model",
			Remedy: "use another drafter or the head: no setting reads these rows",
		}, taps})
	}
	return append(list, tapRepair{Repair{
		Name: "the last tap before the final norm", Kind: "taps", Cause: "its last tap is read after the final norm of the model and was made for the row before it", Remedy: remedy(taps),
	}, taps})
}

// numbers is a list in JSON.
func numbers(list []int) string { return strings.ReplaceAll(fmt.Sprint(list), " ", ", ") }

// blockRepairs are those of block drafters: which row drafts which token, and what rows see.
func (d *Drafter) blockRepairs(add func(Repair, func(*config), func(string) float32)) {
	c := d.config()
	r := Repair{
		Name: "drafts of the rows after the first", Kind: "kind", Cause: "it is a DFlash drafter that is read as DSpark: the first row of a block drafts nothing",
		Remedy: `set "sample_from_anchor" to false in config.json`,
	}
	if !c.anchor {
		r = Repair{
			Name: "drafts of all rows, the first included", Kind: "kind", Cause: "it is a DSpark drafter that is read as DFlash: row j of a block drafts the token after its own position",
			Remedy: `set "architectures" to ["Qwen3DSparkModel"] in config.json, without "sample_from_anchor"`,
		}
	}
	if c.kind != DFlash2 {
		add(r, func(c *config) { c.anchor = !c.anchor }, nil)
	}
	windowed := slices.ContainsFunc(c.layers, func(l layerKind) bool { return l.window > 0 })
	see := func(l layerKind) func(*config) {
		return func(c *config) { c.layers = slices.Repeat([]layerKind{l}, len(c.layers)) }
	}
	switch {
	case windowed:
		add(Repair{
			Name: "layers without windows", Kind: "window", Cause: "its layers were made without windows, but config.json gives them some",
			Remedy: `set "use_sliding_window" to false in config.json`,
		}, see(layerKind{}), nil)
	case c.sliding.window > 0:
		add(Repair{
			Name: fmt.Sprintf("windows of %d positions", c.sliding.window), Kind: "window",
			Cause:  fmt.Sprintf("its windows are ignored: it was made for layers that see %d positions", c.sliding.window),
			Remedy: `set "use_sliding_window" to true and all "layer_types" to "sliding_attention" in config.json`,
		}, see(c.sliding), nil)
	}
}

// Window is the window that config.json names, whether layers have it or not; 0: none.
func (d *Drafter) Window() int { return d.config().sliding.window }

func (d *Drafter) config() *config {
	n, _ := d.network()
	return n.cfg
}

// variant is a drafter with the matrices of d, a changed config, and norms of its own if shift is given: it is added to the
// gains of modules.
func (d *Drafter) variant(change func(*config), shift func(module string) float32) (*Drafter, error) {
	cfg := *d.config()
	cfg.taps = d.Taps
	if change != nil {
		change(&cfg)
	}
	x := newDrafter(&cfg, d.loaded, d.options)
	x.shared, x.Tokens = true, d.Tokens
	from, _ := d.network()
	to, _ := x.network()
	to.Embed, to.Unembed, to.Norm, to.columns = from.Embed, from.Unembed, from.Norm, from.columns
	switch {
	case d.assistant != nil:
		x.assistant.share(d.assistant)
	case d.eagle != nil:
		h, old := x.eagle, d.eagle
		h.fc, h.allNorm, h.tapNorms = old.fc, old.allNorm, slices.Clone(old.tapNorms)
		h.block.share(&old.block)
	default:
		h, old := x.block, d.block
		h.fc, h.hiddenNorm, h.markov, h.confidence = old.fc, old.hiddenNorm, old.markov, old.confidence
		h.selector = selector{project: old.selector.project, before: old.selector.before, after: old.selector.after}
		for i := range h.layers {
			h.layers[i].share(&old.layers[i])
		}
	}
	if shift == nil {
		return x, nil
	}
	_, table := x.network()
	for w := range table {
		if w.Kind != weights.Gain {
			continue
		}
		if err := x.shiftGain(w.Tensor(), shift(strings.TrimSuffix(strings.TrimPrefix(w.Name, weights.DrafterPrefix), ".weight"))); err != nil {
			return nil, err // what was allocated is freed with the backend
		}
	}
	return x, nil
}

// share takes over the weights of another layer, but not its view.
func (y *layer) share(from *layer) {
	at, block, window := y.at, y.attn.Block, y.attn.Window
	*y = *from
	y.at, y.attn.Block, y.attn.Window = at, block, window
}

// shiftGain replaces a gain by one that is larger.
func (d *Drafter) shiftGain(gain *backend.Tensor, by float32) error {
	b := d.loaded.Backend
	old, err := b.Host(*gain)
	if err != nil {
		return err
	}
	moved := slices.Clone(old)
	for i := range moved {
		moved[i] += by
	}
	if *gain, err = backend.At(b, backend.Part{Kind: backend.HeadPart}).Alloc(dtype.F32, 1, len(moved)); err != nil {
		return err
	}
	d.gains = append(d.gains, *gain)
	return b.Write(*gain, moved)
}
