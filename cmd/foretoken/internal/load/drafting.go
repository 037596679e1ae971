package load

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/spec"
)

// draftFlags choose the drafter and how it is used.
type draftFlags struct {
	MTP        flags.Setting[string] // auto if not given
	Drafter    flags.Setting[string] // auto if not given
	File       string                // of a drafter that drafts in place of the head
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

// DrafterUsage describes the flag --drafter.
const DrafterUsage = "`PATH` of a DFlash, DFlash2, DSpark or EAGLE-3 drafter made for the model, a folder or a GGUF file: it drafts in place of the head"

func newDraftFlags() *draftFlags {
	return &draftFlags{
		MTP:     flags.Choice("auto", "on", "off"),
		Drafter: flags.Choice("auto", "mtp", "block", "ngram"),
		depth:   flags.Setting[spec.Depth]{Kind: "auto|0..8", Parse: spec.ParseDepth, Check: func(spec.Depth) error { return nil }},
		accept:  flags.Choice(spec.Exact.String(), spec.Ratio.String()),
		Vocab:   flags.Worded("auto|all|N", map[string]int{"auto": vocabAuto, "all": vocabAll}, 1, math.MaxInt32),
	}
}

func (f *draftFlags) Group() flags.Group {
	g := flags.NewGroup("Speculative decoding (changes speed, not text, except with --mtp-accept ratio)")
	fs := g.Flags()
	fs.SortFlags = false
	fs.Var(&f.MTP, "mtp", "use the checkpoint's multi-token-prediction head (default auto: if it has one)")
	fs.Var(&f.depth, "mtp-depth", "draft tokens per round, not counting tokens forced by a grammar (default auto: fastest)")
	fs.Var(&f.accept, "mtp-accept", "acceptance rule: exact gives the text of plain decoding, ratio its distribution (default exact)")
	fs.Var(&f.Drafter, "draft", "drafter: the multi-token-prediction head, the one of --drafter (block), n-grams of the text, or n-grams beside one of the others (default auto)")
	fs.StringVar(&f.File, "drafter", "", DrafterUsage)
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
}

// Validate refuses flags that contradict each other.
func (f *draftFlags) Validate() error {
	switch {
	case f.Drafter.Value == "block" && f.File == "":
		return flags.Usagef("--draft block needs --drafter, the file of a drafter")
	case f.File != "" && (f.Drafter.Value == "mtp" || f.Drafter.Value == "ngram"):
		return flags.Usagef("--drafter and --draft %s cannot be combined: use --draft block for the drafter alone, or auto for n-grams beside it", f.Drafter.Value)
	case f.File != "" && f.MTP.Value == "on":
		return flags.Usagef("--drafter and --mtp=on cannot be combined: the drafter drafts in place of the head")
	case f.File != "":
	case f.MTP.Value == "off" && (f.Drafter.Value == "mtp" || f.Drafter.Value == "auto"):
		return flags.Usagef("--mtp=off and --draft %s cannot be combined: --draft %[1]s needs the head; use --draft ngram", f.Drafter.Value)
	case f.MTP.Value == "on" && f.Drafter.Value == "ngram":
		return flags.Usagef("--draft ngram and --mtp=on cannot be combined: use --draft auto for both")
	}
	return nil
}

// possible reports whether the flags allow draft tokens.
func (f *draftFlags) possible() bool {
	return f.depth.Value != spec.DepthOff && (f.MTP.Value != "off" || f.Drafter.Given || f.File != "")
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
	case f.MTP.Value == "off", f.Drafter.Value == "ngram":
		o.Head = foretoken.HeadOff
	}
	o.Drafter, o.NoLookup = f.File, f.Drafter.Value == "mtp" || f.Drafter.Value == "block"
	return o
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
	return fmt.Sprintf("mtp: acceptance%s, a draft token%s costs %.2f of a pass, best depth %d, expected %.2f times plain",
		rates, vocab, v.DraftTime.Seconds()/v.StepTime.Seconds(), v.Depth, v.Speedup)
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
