// Package doctor examines checkpoints. Inspect describes their files, by the headers
// alone; Examine measures a loaded model, finds the faults of its head, and says
// in plain words what to do.
//
// It knows the ways in which converters and quantizers have damaged checkpoints of the
// Qwen3.5 family. It does not know where models come from or how a terminal looks: it
// returns facts, and texts to show. It changes nothing.
package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dialogue"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/offload"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/internal/tokenizer"
)

// Facts are the contents of a checkpoint's files.
type Facts struct {
	Name     string          `json:"name"`     // the folder or file, as the user named it
	Family   string          `json:"family"`   // for people; empty if unknown
	Loadable bool            `json:"loadable"` // the model can be loaded
	Files    int             `json:"files"`    // of weights
	Bytes    int64           `json:"bytes"`    // of these
	Model    *weights.Survey `json:"model"`    // nil if the config is not supported
	Memory   *Memory         `json:"memory"`   // nil if Model is
	Drafter  string          `json:"drafter"`  // files of the drafter that the model is used with; empty: none, or the checkpoint is a drafter
	// Devices is where it would go on the devices of this machine beside the processor.
	Devices   []offload.Preview `json:"devices"`
	Pictures  *Pictures         `json:"pictures"` // nil without a vision tower that can be used
	Tokenizer *Tokenizer        `json:"tokenizer"`
	Template  *Template         `json:"template"`
	Problems  []Problem         `json:"problems"`

	tok       *tokenizer.Tokenizer
	family    *model.Family      // nil as Model, or if its config is not sound
	template  *dialogue.Template // nil as Template
	textScale float64            // of embedded tokens; 0: not measured
}

// Memory is about the memory for running the model, in bytes.
type Memory struct {
	Context   int   `json:"context"`           // tokens of each sequence
	Batch     int   `json:"batch"`             // sequences
	Weights   int64 `json:"weights"`           // vision tower included, and the head if it is loaded
	KV        int64 `json:"kv"`                // keys and values of the attention layers
	KVBits    int   `json:"kv_bits,omitempty"` // of a number of theirs; 0: 16
	Recurrent int64 `json:"recurrent"`
	Head      int64 `json:"head"` // keys and values of head and drafter, and hidden rows it has yet to catch up with
	Total     int64 `json:"total"`
	ServeKV   int64 `json:"serve_kv"` // the default of serve --kv-memory, unless half of the free memory is less
}

// Problem is something wrong with a checkpoint.
type Problem struct {
	What   string `json:"what"`
	Remedy string `json:"remedy"`
	Fatal  bool   `json:"fatal"` // the model cannot be loaded
}

// InspectOptions configure Inspect. The zero value is the default.
type InspectOptions struct {
	Name    string         // the user's name of the model, for suggested commands; empty: that of the checkpoint
	Context int            // tokens to count memory for; 0: 4096, or the model's limit if that is less
	Batch   int            // sequences to count memory for; 0: 1
	KVBits  int            // per number of their keys and values; 0: 16
	Devices []backend.Info // of this machine
	Offload offload.Want   // requested placement on a device with its own memory
	NoHead  bool           // memory is counted without the multi-token-prediction head
	// Drafter is the files of the drafter that the model is used with, beside the head; nil: none.
	Drafter *checkpoint.Checkpoint
	// Template finds the source of the chat template in the files of a checkpoint, empty
	// if there is none, and that of a second one for tools. Nil: templates are not checked.
	Template func(*checkpoint.Checkpoint) (source, tools string, err error)
}

// defaultContext is the context for the memory figures if the options set none.
const defaultContext = 4096

// Inspect reads the headers of a checkpoint, its JSON files and the numbers of some
// norms: the time does not depend on the size of the model. Faults are
// part of the facts. The checkpoint may be one that checkpoint.Examine opened.
func Inspect(c *checkpoint.Checkpoint, o InspectOptions) *Facts {
	f := &Facts{Name: o.Name, Files: len(c.Files()), Bytes: c.Bytes(), Problems: []Problem{}, Devices: []offload.Preview{}}
	if f.Name == "" {
		f.Name = c.Name()
	}
	for _, s := range c.Sidecars {
		f.Files += len(s.Files())
		f.Bytes += s.Bytes()
	}
	for _, err := range c.Damage() {
		f.problem(true, "fetch that file again from where the model was published; foretoken pull checks sizes and hashes", "%v", err)
	}
	f.model(c)
	if f.isDrafter() {
		f.Memory = newMemory(f.Model, nil, o)
		f.weights()
		f.Loadable = len(f.Problems) == 0
		return f
	}
	if f.Model != nil {
		drafter := f.drafter(&o)
		f.Memory = newMemory(f.Model, drafter, o)
		if drafter != nil {
			f.Model.AddDrafter(drafter, o.NoHead)
			o.NoHead = false
		}
		f.Devices = offload.PreviewOn(o.Devices, f.Model, o.Offload, offload.Options{Context: f.Memory.Context, KVMemory: f.Memory.Total - f.Memory.Weights, KVBits: o.KVBits, NoHead: o.NoHead})
		f.weights()
		f.head()
	}
	f.vision(c)
	f.text(c, o)
	f.pictureTokens(c)
	f.Loadable = !slices.ContainsFunc(f.Problems, func(p Problem) bool { return p.Fatal })
	return f
}

// problem adds a problem, unless it is on the list already.
func (f *Facts) problem(fatal bool, remedy, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	packages := []string{"model", "weights", "checkpoint"}
	if f.family != nil {
		packages = append([]string{f.family.Package}, packages...)
	}
	for _, name := range packages {
		what = strings.TrimPrefix(what, name+": ")
	}
	for _, p := range f.Problems {
		if strings.Contains(what, p.What) {
			return
		}
	}
	f.Problems = append(f.Problems, Problem{What: what, Remedy: remedy, Fatal: fatal})
}

// isDrafter reports whether the checkpoint is a drafter, not a model.
func (f *Facts) isDrafter() bool { return f.Model != nil && f.Model.Drafter != nil && f.Drafter == "" }

// drafter adds the drafter of the options to the survey, if it fits.
func (f *Facts) drafter(o *InspectOptions) *weights.Survey {
	if o.Drafter == nil {
		return nil
	}
	d, err := model.Fit(o.Drafter, model.TargetOf(f.Model))
	switch {
	case err != nil:
	case len(d.Errors) > 0:
		err = d.Errors[0]
	case len(d.Missing) > 0:
		err = fmt.Errorf("%s missing: %s", counted(len(d.Missing), "tensor is", "tensors are"), some(d.Missing))
	}
	if err != nil {
		f.problem(false, "choose the drafter that was made for this model, or use --drafter off", "drafter %s cannot be used: %v", o.Drafter.Name(), err)
		return nil
	}
	f.Drafter = o.Drafter.Name()
	return d
}

// model surveys the weights, if the family is known.
func (f *Facts) model(c *checkpoint.Checkpoint) {
	family, err := model.Of(c.Config())
	var unknown *model.UnknownError
	var isDrafter *model.DrafterError
	if errors.As(err, &isDrafter) {
		family, err = model.OfPart(c.Config())
	}
	switch {
	case errors.As(err, &unknown):
		f.problem(true, "foretoken supports "+strings.Join(model.Types(), ", ")+": choose such a model",
			"config.json: model_type %q is not supported", unknown.Type)
		return
	case err != nil:
		f.problem(true, "fetch config.json again from where the model was published", "%v", err)
		return
	}
	f.family = family
	survey, err := family.Survey(c)
	if err != nil {
		f.problem(true, "compare config.json with the one the model was published with; if it is the same, choose another variant of the model", "%v", err)
		return
	}
	f.Model, f.Family = survey, survey.Family
}

// newMemory is the memory of a model, with a drafter if that is not nil, or of a drafter alone.
func newMemory(n, drafter *weights.Survey, o InspectOptions) *Memory {
	m := &Memory{Context: o.Context, Batch: max(o.Batch, 1), KVBits: o.KVBits, Weights: n.Loaded}
	if m.Context == 0 {
		m.Context = defaultContext
		if n.Context > 0 { // drafters have no limit
			m.Context = min(defaultContext, n.Context)
		}
	}
	kv := (&model.Options{KVBits: o.KVBits}).KVType()
	need := state.Need{Target: n.Layout.Typed(kv)}
	m.Recurrent = int64(m.Batch) * n.Layout.RecurrentBytes()
	m.KV = int64(m.Batch)*need.Target.Bytes(m.Context) - m.Recurrent
	switch {
	case o.NoHead:
		m.Weights -= n.Sizes[backend.Part{Kind: backend.HeadPart}].Bytes
	case n.Head.Present:
		need.Drafts = []state.DraftNeed{spec.Need(n.HeadLayout.Typed(kv), n.Hidden)}
	}
	if drafter != nil {
		m.Weights += drafter.Loaded
		need.Drafts = append(need.Drafts, spec.Need(drafter.Layout.Typed(kv), n.Hidden*len(drafter.Drafter.Taps)))
	}
	m.Head = int64(m.Batch) * need.DraftBytes(m.Context)
	m.Total = m.Weights + m.KV + m.Recurrent + m.Head
	m.ServeKV = need.Budget(offload.DefaultBatch, min(offload.DefaultContext, n.Context))
	return m
}

// weights lists the faults of the model's tensors without its head.
func (f *Facts) weights() {
	n := f.Model
	const again = "the download or the conversion is not complete: fetch or convert the model again"
	if missing := slices.DeleteFunc(slices.Clone(n.Missing), inHead); len(missing) > 0 {
		remedy := again
		if slices.Contains(missing, "lm_head.weight") && len(missing) == 1 {
			remedy = `if the embedding is also the output matrix, set "tie_word_embeddings": true in config.json`
		}
		f.problem(true, remedy, "%s missing: %s", counted(len(missing), "tensor is", "tensors are"), some(missing))
	}
	for _, w := range n.Warnings {
		f.problem(false, "convert from the original again", "%s", w)
	}
	if len(n.Unknown) > 0 {
		f.problem(true, "the config and the weights belong to different models, or a tool has added tensors: convert from the original",
			"%s not part of a %s model: %s", counted(len(n.Unknown), "tensor is", "tensors are"), n.ModelType, some(n.Unknown))
	}
	const few = 4
	for _, err := range n.Errors[:min(few, len(n.Errors))] {
		f.problem(true, again, "%v", err)
	}
	if more := len(n.Errors) - few; more > 0 {
		f.problem(true, again, "%s an error", counted(more, "more tensor has", "more tensors have"))
	}
	switch g := n.LayerGain; {
	case g > 1.75 && g < 2.25:
		f.problem(false, "convert from the original: foretoken convert --model ORIGINAL --out DIR",
			"the mean gain of the layers' norms is %.2f, near 2: they were probably shifted by one twice", g)
	case g > -0.1 && g < 0.1 && n.LayerNorms != "":
		f.problem(false, "convert from the original: foretoken convert --model ORIGINAL --out DIR",
			"the mean gain of the layers' norms is %.2f, near 0: they probably miss a shift by one", g)
	}
}

// head lists the faults of the head's tensors.
func (f *Facts) head() {
	h := &f.Model.Head
	switch {
	case len(h.Missing) > 0:
		f.problem(true, fmt.Sprintf("%s; or remove the head: foretoken mtp remove --model %s --out DIR", replaceRemedy(f.Name), quoted(f.Name)),
			"the multi-token-prediction head is incomplete, %s missing: %s", counted(len(h.Missing), "tensor is", "tensors are"), some(h.Missing))
	case !h.Present && h.Promised > 0:
		f.problem(false, injectRemedy(f.Name),
			"config.json declares a multi-token-prediction head, but the weights have none: a converter has dropped its mtp tensors; the model runs without it, one token at a time")
	}
	if len(h.Ignored) > 0 {
		f.problem(false, "to use it, remove the other head with foretoken mtp remove",
			"the head in %s is not used: the weights have another", strings.Join(h.Ignored, ", "))
	}
}

// injectRemedy suggests to inject a head.
func injectRemedy(name string) string {
	return fmt.Sprintf("add it: foretoken mtp inject --model %s --head FILE, where FILE is a head or the original model; or fetch it: foretoken pull ORG/NAME --with-head", quoted(name))
}

// replaceRemedy puts a head in place of a bad one.
func replaceRemedy(name string) string {
	return fmt.Sprintf("replace it: foretoken mtp inject --model %s --head FILE --out DIR --force, where FILE is a head or the original model", quoted(name))
}

// quoted is a name as one word for a shell.
func quoted(name string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r > 0x7f || strings.ContainsRune("/._-+,:@=~", r)
	}
	if name != "" && strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) < 0 {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

func inHead(name string) bool { return strings.HasPrefix(name, "mtp.") }

// some names a few of many.
func some(names []string) string {
	const few = 6
	if len(names) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
	}
	return strings.Join(names, ", ")
}

// counted is a number with the singular or plural of a word.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
