package weights

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/state"
)

// Survey describes the model of a checkpoint by its headers. Names of tensors are
// canonical.
type Survey struct {
	Family          string  `json:"-"` // for people
	ModelType       string  `json:"model_type"`
	Hidden          int     `json:"hidden_size"`
	Vocab           int     `json:"vocab_size"` // padding included
	Context         int     `json:"context"`    // maximum positions it was made for
	AttentionLayers int     `json:"attention_layers"`
	DeltaLayers     int     `json:"delta_layers"`
	Experts         int     `json:"experts"`         // 0: dense
	ActiveExperts   int     `json:"experts_per_tok"` // of a layer, besides the shared one
	Tied            bool    `json:"tied_output"`     // the embedding is also the output matrix
	Stop            []int32 `json:"stop_ids"`

	Parameters int64  `json:"parameters"`        // existing ones of the model, without the head's
	Active     int64  `json:"active_parameters"` // of these, those that a pass over one token reads
	Loaded     int64  `json:"loaded_bytes"`      // about the memory of all weights, head and tower included
	Parts      []Part `json:"parts"`

	LayerNorms string      `json:"layer_norms"` // convention: raw or converted
	LayerGain  float64     `json:"layer_gain"`  // mean effective gain of the layers' input norms, near 1
	Head       HeadSurvey  `json:"mtp_head"`
	Tower      TowerSurvey `json:"vision"`
	// Drafter is set for a drafter in files of its own, and for a model with one.
	Drafter    *DrafterSurvey `json:"drafter,omitempty"`
	Layout     state.Layout   `json:"-"` // state of a sequence
	HeadLayout state.Layout   `json:"-"`
	// Sizes are the sizes of the parts that can be placed on different devices.
	Sizes map[backend.Part]Size `json:"-"`

	Missing  []string `json:"missing"` // tensors that the config promises; a bounded list
	Unknown  []string `json:"unknown"` // tensors, under their names in the files, that are no part of it; incomplete if there are Errors
	Warnings []string `json:"-"`       // known harmless changes of converters
	Errors   []error  `json:"-"`       // other faults of single tensors; a bounded list

	odd []string // norms with numbers that are not finite
}

// Part is a kind of weights.
type Part struct {
	Name       string   `json:"name"` // embedding, layer table, output, attention, delta, mlp, experts, norms, mtp head, vision
	Tensors    int      `json:"tensors"`
	Parameters int64    `json:"parameters"`
	Bytes      int64    `json:"bytes"`     // in the files, scales included
	Encodings  []string `json:"encodings"` // of its matrices
	Bits       int      `json:"bits"`      // of an element of its most coarsely encoded matrix; 0: it has none
}

// Size is the size of a part of a model.
type Size struct {
	Parameters int64
	Bytes      int64 // about the memory of its weights
	Pass       int64 // of these, those that a pass over one token reads
	Outputs    int   // of all its products for one token
	Matrices   []Matrices
}

// Matrices is the matrices of a weight, which are written alike.
type Matrices struct {
	Form  dtype.Matrix // without data, with the rows of all of them
	Bytes int64
}

// add adds a weight of some bytes in memory.
func (s *Survey) add(w *Weight, bytes int64) {
	s.Loaded += bytes
	p := partOf(w.Name)
	x := s.Sizes[p]
	x.Parameters += w.Parameters()
	x.Bytes += bytes
	outputs := 0
	if w.IsMatrix() {
		outputs = w.Rows
	}
	switch {
	case p.Kind == backend.ExpertsPart && w.Experts > 0:
		outputs *= s.ActiveExperts
		bytes = bytes / int64(w.Experts) * int64(s.ActiveExperts)
	case w.Experts > 0:
		outputs *= w.Experts
	}
	if p.Kind == backend.EmbeddingPart && !s.Tied {
		bytes = bytes / int64(max(w.Rows, 1)) // one row is looked up
	}
	x.Outputs += outputs
	x.Pass += bytes
	if s.Sizes == nil {
		s.Sizes = map[backend.Part]Size{}
	}
	s.Sizes[p] = x
}

// AddDrafter adds a drafter to the survey of a model, in place of the head or beside it.
func (s *Survey) AddDrafter(d *Survey, noHead bool) {
	p := backend.Part{Kind: backend.HeadPart}
	if _, present := s.Sizes[p]; noHead || !present {
		s.Loaded -= s.Sizes[p].Bytes
		delete(s.Sizes, p)
		s.HeadLayout = state.Layout{}
	}
	s.Drafter, s.Loaded = d.Drafter, s.Loaded+d.Loaded
	x, y := s.Sizes[p], d.Sizes[p]
	s.Sizes[p] = Size{
		Parameters: x.Parameters + y.Parameters, Bytes: x.Bytes + y.Bytes, Pass: x.Pass + y.Pass, Outputs: x.Outputs + y.Outputs,
		Matrices: slices.Concat(x.Matrices, y.Matrices),
	}
	s.HeadLayout.Head, s.HeadLayout.MaxDrafts = true, max(s.HeadLayout.MaxDrafts, d.Layout.MaxDrafts)
	s.HeadLayout.Layers = slices.Concat(s.HeadLayout.Layers, d.Layout.Layers)
	part := Part{Name: "drafter", Encodings: []string{}}
	for _, q := range d.Parts {
		part.Tensors, part.Parameters, part.Bytes = part.Tensors+q.Tensors, part.Parameters+q.Parameters, part.Bytes+q.Bytes
		for _, e := range q.Encodings {
			if !slices.Contains(part.Encodings, e) {
				part.Encodings = append(part.Encodings, e)
			}
		}
	}
	s.Parts = append(s.Parts, part)
}

// HeadSurvey is about the multi-token-prediction head.
type HeadSurvey struct {
	Promised int      `json:"promised"` // layers by config.json
	Present  bool     `json:"present"`  // by tensors
	Missing  []string `json:"missing"`
	Sidecar  bool     `json:"sidecar"` // in a file beside the main weights
	Files    []string `json:"files"`
	Origin   string   `json:"origin,omitempty"` // ORG/NAME@COMMIT of one that was fetched apart from the model
	Ignored  []string `json:"ignored"`          // sidecars whose head is not used, since there is another
	PreNorm  bool     `json:"pre_norm"`
	Norms    []Norm   `json:"norms"`
}

// TowerSurvey is about the vision tower.
type TowerSurvey struct {
	Promised   bool  `json:"promised"` // by config.json
	Present    bool  `json:"present"`  // by tensors
	Problem    error `json:"-"`        // why it cannot be used; then the model takes no images
	Layers     int   `json:"layers"`   // this and the following fields: of a usable one
	Width      int   `json:"hidden_size"`
	Heads      int   `json:"heads"`
	Patch      int   `json:"patch_size"`          // in pixels
	Temporal   int   `json:"temporal_patch_size"` // in frames
	Merge      int   `json:"merge_size"`          // in patches
	Parameters int64 `json:"parameters"`
	Loaded     int64 `json:"loaded_bytes"` // about its memory
}

// DrafterSurvey is about a drafter in files of its own. Sizes of its model are 0 if the files do not tell them.
type DrafterSurvey struct {
	Kind         string `json:"kind"`
	Made         string `json:"made_for,omitempty"` // name of the model, by config.json
	TargetHidden int    `json:"target_hidden_size"`
	TargetLayers int    `json:"target_layers"`
	Vocab        int    `json:"vocab_size"`
	DraftVocab   int    `json:"draft_vocab_size"`
	Taps         []int  `json:"taps"`           // layers of the model whose inputs it reads; the number of layers stands for the output of the last
	Block        int    `json:"block_size"`     // maximum rows of a block; 0: it drafts one token per pass
	Mask         *int32 `json:"mask_token_id"`  // of blocks
	Window       int    `json:"sliding_window"` // 0: it reads the whole context
	OwnEmbedding bool   `json:"own_embedding"`
	OwnOutput    bool   `json:"own_output"`
}

// Norm is the weight of one norm.
type Norm struct {
	Tensor     string  `json:"tensor"`
	Mean       float64 `json:"mean"`       // as stored
	Convention string  `json:"convention"` // raw: the gain is the stored number plus one; converted: it is stored
}

// Survey reads the headers of the tables' weights. s has the config's data. No byte of a
// tensor is read except the norms of the head and the input norms of the layers, whose numbers determine
// their conventions; so the time does not depend on the size of the model. It requests the same tensors as
// loading, so that everything that would be refused is in Missing, Unknown or Errors.
func (f *Files) Survey(s *Survey, t Tables) {
	s.walk(f, t.Model)
	if there, err := f.HasHead(); there && t.Head != nil {
		if err != nil {
			s.Fail(err)
		}
		s.walk(f, t.Head)
	}
	if s.Tower.Present = f.HasTower(); t.Tower != nil {
		before := s.Loaded
		s.walk(f, t.Tower)
		s.Tower.Loaded = s.Loaded - before
		s.Tower.Parameters = s.named(visionPart).Parameters
	}
	s.Missing = append(s.Missing, f.missing...)
	if len(s.Errors) == 0 { // after an error some tensors were not requested
		s.Unknown = append(s.Unknown, f.unused()...)
	}
	s.sum(f)
}

// walk reads the headers of a table's weights.
func (s *Survey) walk(f *Files, table iter.Seq[*Weight]) {
	for w := range table {
		if f.find(w); len(w.places) == 0 {
			continue
		}
		if w.IsMatrix() {
			p := partOf(w.Name)
			loaded, size := s.Loaded, s.Sizes[p]
			if s.matrices(w); f.seemsCopied(w) {
				s.Loaded, s.Sizes[p] = loaded, size
			}
		} else {
			s.vector(f, w)
		}
	}
}

// maxErrors bounds the list of a survey.
const maxErrors = 100

// Fail adds an error to the list.
func (s *Survey) Fail(err error) {
	if len(s.Errors) < maxErrors {
		s.Errors = append(s.Errors, err)
	}
}

// visionPart is the part of a vision tower.
const visionPart = "vision"

// parts are the kinds of weights by parts of their names: the first that fits counts.
var parts = []struct {
	name  string
	marks []string
}{
	{"mtp head", []string{headPrefix}},  // it has layers too
	{visionPart, []string{towerPrefix}}, // likewise
	{lookupPart, []string{"embed_tokens_per_layer"}},
	{"embedding", []string{"embed_tokens"}},
	{"output", []string{"lm_head"}},
	{"norms", []string{"layernorm"}},
	{"attention", []string{".self_attn."}},
	{"delta", []string{".linear_attn."}},
	{"experts", []string{".mlp.experts.", ".mlp.switch_mlp."}},
	{"mlp", []string{".mlp."}},
	{"norms", []string{"norm."}},
}

// part is the part that a tensor or module with that canonical name belongs to.
func (s *Survey) part(name string) *Part {
	kind := "other"
	for _, p := range parts {
		if slices.ContainsFunc(p.marks, func(m string) bool { return strings.Contains(name, m) }) {
			kind = p.name
			break
		}
	}
	return s.named(kind)
}

func (s *Survey) named(kind string) *Part {
	for i := range s.Parts {
		if s.Parts[i].Name == kind {
			return &s.Parts[i]
		}
	}
	s.Parts = append(s.Parts, Part{Name: kind, Encodings: []string{}})
	return &s.Parts[len(s.Parts)-1]
}

// matrices adds a stack of matrices, which must be alike.
func (s *Survey) matrices(w *Weight) {
	stack, err := w.Stored()
	if err != nil {
		s.Fail(err)
		return
	}
	p, loaded := s.part(w.module()+"."), int64(0)
	for i := range stack {
		m, first := &stack[i], &stack[0]
		if !alike(m, first) {
			s.Fail(fmt.Errorf("weights: %s: matrix %d is %s, but the first is %s: all must be equal", w.module(), i, writing(m), writing(first)))
			return
		}
		p.Parameters += int64(m.Rows) * int64(m.Cols)
		if w.Kind == Table {
			loaded += 4 * w.Parameters()
		} else {
			loaded += int64(m.Rows) * int64(planned(m).LoadedRowBytes())
		}
		if bits := m.ElementBits(); p.Bits == 0 || bits < p.Bits {
			p.Bits = bits
		}
		if e := writing(m); !slices.Contains(p.Encodings, e) {
			p.Encodings = append(p.Encodings, e)
		}
	}
	if w.Kind == Lookup {
		return
	}
	if w.Kind != Table && len(stack) > 0 {
		loaded += stack[0].InputBytes() // one for all
	}
	s.add(w, loaded)
	if w.Kind != Table && len(stack) > 0 {
		s.form(w, planned(&stack[0]), loaded)
	}
}

// planned is the form, without Data, that the default loads of a matrix.
func planned(m *dtype.Matrix) *dtype.Matrix {
	if f, ok := m.IntegerForm(); ok {
		return &f
	}
	return m
}

// form adds the encoding of an added weight.
func (s *Survey) form(w *Weight, m *dtype.Matrix, bytes int64) {
	p := partOf(w.Name)
	x := s.Sizes[p]
	form := *m
	form.Rows, form.Data, form.Scales, form.Biases = int(w.Parameters()/int64(m.Cols)), nil, nil, nil
	if form.Zeros != nil {
		form.Zeros = []byte{}
	}
	x.Matrices = append(x.Matrices, Matrices{form, bytes})
	s.Sizes[p] = x
}

// writing names how a matrix is written.
func writing(m *dtype.Matrix) string {
	switch {
	case m.Input == nil:
		return format(m)
	case m.Input.Rotation != nil:
		return format(m) + ", rotated inputs"
	default:
		return format(m) + ", act-order"
	}
}

// format is writing without the input.
func format(m *dtype.Matrix) string {
	switch m.Format {
	case dtype.Plain:
		return strings.ToLower(m.Type.String())
	case dtype.Affine:
		return fmt.Sprintf("affine %d bits in groups of %d", m.Bits, m.Group)
	case dtype.ZeroPoint:
		points := ""
		if m.Zeros != nil {
			points = " with zero points"
		}
		return fmt.Sprintf("int%d%s in groups of %d", m.Bits, points, m.Group)
	case dtype.FP8:
		return fmt.Sprintf("fp8 in blocks of %d", m.Group)
	default:
		return m.Format.String()
	}
}

// vector adds a weight that is not a matrix. The numbers of a norm are read if they determine its
// convention.
func (s *Survey) vector(f *Files, w *Weight) {
	if err := w.check(); err != nil {
		s.Fail(err)
		return
	}
	s.part(w.Name).Parameters += w.Parameters()
	s.add(w, 4*w.Parameters())
	if w.Kind != Gain || !w.Head() && !w.layerInput() {
		return
	}
	v, c, err := w.stored()
	mean := Mean(v)
	switch {
	case err != nil:
		s.Fail(err)
	case math.IsNaN(mean) || math.IsInf(mean, 0):
		s.odd = append(s.odd, w.Name)
	case w.Head():
		s.Head.Norms = append(s.Head.Norms, Norm{Tensor: w.Name, Mean: mean, Convention: c.String()})
	case c == LessOne:
		f.gains = append(f.gains, mean+1)
	default:
		f.gains = append(f.gains, mean)
	}
}

// sum completes the survey when all tensors were requested.
func (s *Survey) sum(f *Files) {
	s.LayerNorms = f.Norms.Model.String()
	for _, g := range f.gains {
		s.LayerGain += g / float64(len(f.gains))
	}
	if n := len(s.odd); n > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%d norms have numbers that are not finite, such as %s", n, s.odd[0]))
	}
	for name, p := range f.names {
		if IsTower(name) {
			continue // see vision
		}
		part := s.part(name)
		part.Tensors++
		t, _ := p.From.Look(p.Name)
		part.Bytes += size(t)
		if IsHead(name) {
			s.Head.Present, s.Head.Sidecar = true, p.Beside
			if !slices.Contains(s.Head.Files, t.File) {
				s.Head.Files = append(s.Head.Files, t.File)
				s.Head.Origin = p.From.Metadata(t.File)[checkpoint.OriginKey]
			}
		}
	}
	slices.Sort(s.Head.Files)
	for _, side := range f.source.Sidecars {
		if !side.Apart && !slices.Contains(f.weights, side.Weights) {
			s.Head.Ignored = append(s.Head.Ignored, side.File)
		}
	}
	for _, name := range s.Missing {
		if IsHead(name) {
			s.Head.Missing = append(s.Head.Missing, name)
		}
	}
	s.vision(f)
	s.count()
	order := []string{"embedding", lookupPart, "attention", "delta", "mlp", "experts", "norms", "output", "mtp head", visionPart, "other"}
	slices.SortFunc(s.Parts, func(a, b Part) int { return slices.Index(order, a.Name) - slices.Index(order, b.Name) })
}

// vision counts the tensors of the tower. Parameters and encodings are those of the table, if there
// is one: without it the packing is unknown.
func (s *Survey) vision(f *Files) {
	if s.Drafter != nil {
		return
	}
	for _, name := range f.source.Tensors() {
		short, needed := f.Canonical(name)
		if !isExtra(short, needed) {
			continue
		}
		p := s.named(visionPart)
		t, _ := f.source.Look(name)
		p.Tensors++
		p.Bytes += size(t)
		if needed && s.Tower.Parameters > 0 {
			continue
		}
		p.Parameters += int64(Elements(t.Shape))
		if e := strings.ToLower(t.Type.String()); !slices.Contains(p.Encodings, e) {
			p.Encodings = append(p.Encodings, e)
		}
	}
}

// count adds up the parameters of the model without its head.
func (s *Survey) count() {
	for _, p := range s.Parts {
		if p.Name == "mtp head" || p.Name == visionPart {
			continue
		}
		s.Parameters += p.Parameters
		switch {
		case p.Name == lookupPart:
		case p.Name == "experts":
			s.Active += p.Parameters / int64(max(s.Experts, 1)) * int64(s.ActiveExperts)
		case p.Name != "embedding" || s.Tied: // only one row of an embedding is read
			s.Active += p.Parameters
		}
	}
}

// size is the bytes of a tensor.
func size(t checkpoint.Tensor) int64 { return int64(Elements(t.Shape)) * int64(t.Type.Size()) }

// Elements is the number of numbers of a shape.
func Elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
