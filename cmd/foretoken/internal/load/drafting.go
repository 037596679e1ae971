package load

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/models"
	"github.com/foretoken/foretoken/internal/spec"
)

// draftFlags choose the drafter and how it is used.
type draftFlags struct {
	MTP        flags.Setting[string] // auto if not given
	Drafter    flags.Setting[string] // auto if not given
	Files      flags.Texts           // names of drafters in files of their own, or off
	depth      flags.Setting[spec.Depth]
	accept     flags.Setting[string]
	Vocab      flags.Setting[int]
	NoSelfTest bool
}

// Values of flags that are words, beside the numbers.
const (
	vocabAuto = 0
	vocabAll  = -1
)

// AddDrafter adds the flag that names a drafter. more is added to its description.
func (f *draftFlags) AddDrafter(g flags.Group, more string) {
	g.Flags().Var(&f.Files, "drafter", "DFlash, DFlash2, DSpark or EAGLE-3 drafter, or Gemma 4 assistant, made for the model: a `DIR`, a GGUF file or a pulled drafter (ORG/NAME), or off"+more+" (default: the drafter beside the model)")
}

// File is the value of the flag for one model, the last if there are several, "" if it is not given.
func (f *draftFlags) File() string {
	if len(f.Files) == 0 {
		return ""
	}
	return f.Files[len(f.Files)-1]
}

// given reports whether a drafter is named.
func (f *draftFlags) given() bool { return f.File() != "" && f.File() != foretoken.DrafterOff }

func newDraftFlags() *draftFlags {
	return &draftFlags{
		MTP:     flags.Choice("auto", "on", "off"),
		Drafter: flags.Choice("auto", "mtp", "block", "ngram"),
		depth:   flags.Setting[spec.Depth]{Kind: "auto|0..8", Parse: spec.ParseDepth, Check: func(spec.Depth) error { return nil }},
		accept:  flags.Choice(spec.Exact.String(), spec.Ratio.String()),
		Vocab:   flags.Worded("auto|all|N", map[string]int{"auto": vocabAuto, "all": vocabAll}, 1, math.MaxInt32),
	}
}

// Group is the group of the flags. more is added to the description of --drafter.
func (f *draftFlags) Group(more string) flags.Group {
	g := flags.NewGroup("Speculative decoding (changes speed, not text, except with --mtp-accept ratio)")
	fs := g.Flags()
	fs.SortFlags = false
	fs.Var(&f.MTP, "mtp", "use the checkpoint's multi-token-prediction head (default auto: if it has one)")
	fs.Var(&f.depth, "mtp-depth", "draft tokens per round, not counting tokens forced by a grammar (default auto: fastest)")
	fs.Var(&f.accept, "mtp-accept", "acceptance rule: exact gives the text of plain decoding, ratio its distribution (default exact)")
	fs.Var(&f.Drafter, "draft", "drafter: the multi-token-prediction head (mtp), that of --drafter (block), n-grams of the text, or the fastest of all in each round (default auto)")
	f.AddDrafter(g, more)
	fs.Var(&f.Vocab, "draft-vocab", "draft vocabulary: the N most frequent tokens and the tokens of the text (default auto: fastest)")
	fs.BoolVar(&f.NoSelfTest, "no-self-test", false, "do not measure the head on load")
	return g
}

// completeDrafting adds shell completion.
func completeDrafting(cmd *cobra.Command) {
	for name, words := range map[string][]cobra.Completion{
		"mtp": {"auto", "on", "off"}, "mtp-depth": {"auto"}, "mtp-accept": {"exact", "ratio"},
		"draft": {"auto", "mtp", "block", "ngram"}, "draft-vocab": {"auto", "all"},
	} {
		flags.Must(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
	}
	CompleteDrafter(cmd)
}

// CompleteDrafter adds shell completion of --drafter.
func CompleteDrafter(cmd *cobra.Command) {
	flags.Must(cmd.RegisterFlagCompletionFunc("drafter", func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return append(CachedNames(typed), foretoken.DrafterOff), cobra.ShellCompDirectiveDefault
	}))
}

// Validate refuses flags that contradict each other.
func (f *draftFlags) Validate() error {
	switch {
	case f.Drafter.Value == "block" && f.File() == foretoken.DrafterOff:
		return flags.Usagef("--draft block and --drafter off cannot be combined: --draft block needs a drafter; leave out one of them")
	case f.MTP.Value == "off" && (f.Drafter.Value == "mtp" || f.Drafter.Value == "auto" && !f.given()):
		return flags.Usagef("--mtp=off and --draft %s cannot be combined: --draft %[1]s needs the head; use --draft ngram", f.Drafter.Value)
	case f.MTP.Value == "on" && (f.Drafter.Value == "ngram" || f.Drafter.Value == "block"):
		return flags.Usagef("--draft %s and --mtp=on cannot be combined: use --draft auto for both", f.Drafter.Value)
	}
	return nil
}

// possible reports whether the flags allow draft tokens.
func (f *draftFlags) possible() bool {
	return f.depth.Value != spec.DepthOff && (f.MTP.Value != "off" || f.Drafter.Given || f.given())
}

// options are those of the flags.
func (f *draftFlags) options() foretoken.Speculation {
	o := foretoken.Speculation{Depth: foretoken.Depth(f.depth.Value), Vocab: f.Vocab.Or(vocabAuto), NoSelfTest: f.NoSelfTest}
	if !f.possible() {
		o.Depth = foretoken.DepthOff
	}
	o.Rule = foretoken.Rule(f.accept.Value)
	switch {
	case f.MTP.Value == "on", f.Drafter.Value == "mtp":
		o.Head = foretoken.HeadRequired
	case f.MTP.Value == "off", f.Drafter.Value == "ngram", f.Drafter.Value == "block":
		o.Head = foretoken.HeadOff
	}
	o.NoLookup = f.Drafter.Value == "mtp" || f.Drafter.Value == "block"
	return o
}

// Settle sets the drafter in the options of a model, which is at path and was called typed on the command line. file is the value of
// --drafter for it: a name, off, or "" to look for a drafter beside the model and in the cache.
func (f *draftFlags) Settle(o *foretoken.Speculation, typed, path, file string) (err error) {
	switch {
	case o.Depth == foretoken.DepthOff, file == foretoken.DrafterOff, f.Drafter.Value == "mtp", f.Drafter.Value == "ngram":
		o.Drafter = foretoken.DrafterOff
		return nil
	case file != "":
		o.Drafter, err = resolve("drafter", file)
		return err
	}
	name, others := cachedDrafters(typed, path)
	found, err := models.FindDrafter(path, name, others)
	switch {
	case found == "" && f.Drafter.Value == "block":
		return errors.Join(flags.Usagef("--draft block needs a drafter, but there is none beside %s: name one with --drafter", typed), err)
	case found != "" && others[found] != "": // the model's Open finds the others, and logs why some are not used
		o.Drafter = found
	}
	return nil
}

// Drafter opens the drafter of a model, which was called typed: that of a name, or the one beside the model and in the cache if the name is
// "". It is nil if there is none, or if the name is off.
func Drafter(typed, name string) (*checkpoint.Checkpoint, error) {
	if name == foretoken.DrafterOff {
		return nil, nil
	}
	if name != "" {
		path, err := resolve("drafter", name)
		if err != nil {
			return nil, err
		}
		c, err := models.Open(path, "")
		if err != nil {
			return nil, fmt.Errorf("drafter %s: %w", path, err)
		}
		return c, nil
	}
	path, err := Resolve(typed)
	if err != nil {
		return nil, nil // opening the model reports it
	}
	called, others := cachedDrafters(typed, path)
	if name, _ = models.FindDrafter(path, called, others); name == "" {
		return nil, nil
	}
	return models.Open(name, "")
}

// DrafterFor opens the drafter of a name, and checks that it fits a model. It is nil if the name is "" or off.
func DrafterFor(name string, of *checkpoint.Checkpoint) (*checkpoint.Checkpoint, error) {
	if name == "" || name == foretoken.DrafterOff {
		return nil, nil
	}
	path, err := resolve("drafter", name)
	if err != nil {
		return nil, err
	}
	return models.OpenDrafter(path, of)
}

// CachedDrafter is the name of the drafter that a model of the cache is used with, "" if there is none.
func CachedDrafter(typed, path string) string {
	name, others := cachedDrafters(typed, path)
	found, _ := models.FindDrafter(path, name, others)
	if repo := others[found]; repo != "" {
		return repo
	}
	return found
}

// cachedDrafters are the drafters in the cache that are named after a model of the cache, by their paths, and the name of the model.
func cachedDrafters(typed, path string) (name string, others map[string]string) {
	if path == typed {
		return models.Name(path), nil
	}
	name = ServedName(typed, path)
	name = name[strings.LastIndex(name, "/")+1:]
	cache, err := HubCache()
	if err != nil {
		return name, nil
	}
	repos, _ := cache.Repos() // without repositories nothing is found
	others = map[string]string{}
	for _, r := range repos {
		if _, _, ok := models.DrafterMatch(string(r), name); !ok {
			continue
		}
		if s, err := cache.Find(string(r)); err == nil {
			if at, err := s.Path(); err == nil {
				others[at] = string(r)
			}
		}
	}
	return name, others
}

// describeSelfTest is the line about a self-test. Its rates are those of speculation stats: how
// often a draft token and all before it are accepted.
func describeSelfTest(v *foretoken.SelfTest) string {
	rates, all := "", 1.0
	for j := range v.Drafted {
		if v.Drafted[j] > 0 {
			all *= float64(v.Accepted[j]) / float64(v.Drafted[j])
			rates += fmt.Sprintf(" %.2f", all)
		}
	}
	vocab := ""
	if v.Vocab > 0 {
		vocab = fmt.Sprintf(" from %d tokens", v.Vocab)
	}
	return fmt.Sprintf("%s: acceptance%s, a draft token%s costs %.2f of a pass, best depth %d, expected %.2f times plain",
		v.Drafter, rates, vocab, v.DraftTime.Seconds()/v.StepTime.Seconds(), v.Depth, v.Speedup)
}

// DescribeSpeculation is the line on the speculation stats of an answer.
func DescribeSpeculation(r *foretoken.SpeculationStats) string {
	var rates []string
	for j, n := range r.DraftedAt {
		if n > 0 {
			rates = append(rates, fmt.Sprintf("%.2f", float64(r.AcceptedAt[j])/float64(n)))
		}
	}
	drafter := r.Drafter
	if drafter == "" {
		drafter = "no drafter"
	}
	line := fmt.Sprintf("%s: %s in %s", drafter, console.Counted(r.Rounds+r.Accepted+r.Forced, "token"), console.Counted(r.Rounds, "round"))
	if r.Drafted+r.Forced > 0 {
		line += fmt.Sprintf(" (%.2f per round)", r.TokensPerRound())
	}
	if r.Forced > 0 {
		line += fmt.Sprintf(", %d forced by the grammar", r.Forced)
	}
	if r.Drafted == 0 {
		return line + ", no draft tokens"
	}
	line += fmt.Sprintf(", accepted %d of %d draft tokens (%s), depth %.1f", r.Accepted, r.Drafted, strings.Join(rates, " "), r.MeanDepth())
	if r.Speedup > 0 { // there was a plain round to compare with
		line += fmt.Sprintf(", about %.2f times plain", r.Speedup)
	}
	return line
}
