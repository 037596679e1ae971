package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/spec"
)

// draftFlags choose the drafter and how it is used.
type draftFlags struct {
	mtp        setting[string] // auto if not given
	drafter    setting[string] // mtp if not given and there is a head
	depth      setting[spec.Depth]
	accept     setting[string]
	vocab      setting[int]
	noSelfTest bool
}

// Values of flags that are words, beside the numbers.
const (
	vocabAuto = 0
	vocabAll  = -1
)

func newDraftFlags() *draftFlags {
	return &draftFlags{
		mtp:     choice("auto", "on", "off"),
		drafter: choice("mtp", "ngram", "auto"),
		depth:   setting[spec.Depth]{kind: "auto|0..8", parse: spec.ParseDepth, check: func(spec.Depth) error { return nil }},
		accept:  choice(spec.Exact.String(), spec.Ratio.String()),
		vocab:   worded("auto|all|N", map[string]int{"auto": vocabAuto, "all": vocabAll}, 1, math.MaxInt32),
	}
}

func (f *draftFlags) group() flagGroup {
	g := newFlagGroup("Speculative decoding (changes speed, not text, except with --mtp-accept ratio)")
	fs := g.flags.Flags()
	fs.SortFlags = false
	fs.Var(&f.mtp, "mtp", "use the checkpoint's multi-token-prediction head (default auto: if it has one)")
	fs.Var(&f.depth, "mtp-depth", "draft tokens per round, not counting tokens forced by a grammar (default auto: fastest)")
	fs.Var(&f.accept, "mtp-accept", "acceptance rule: exact gives the text of plain decoding, ratio its distribution (default exact)")
	fs.Var(&f.drafter, "draft", "drafter: the multi-token-prediction head, n-grams of the text, or both (default mtp; none without a head)")
	fs.Var(&f.vocab, "draft-vocab", "draft vocabulary: the N most frequent tokens and the tokens of the text (default auto: fastest)")
	fs.BoolVar(&f.noSelfTest, "no-self-test", false, "do not measure the head on load")
	return g
}

// completeDrafting adds what a shell can complete.
func completeDrafting(cmd *cobra.Command) {
	for name, words := range map[string][]cobra.Completion{
		"mtp": {"auto", "on", "off"}, "mtp-depth": {"auto"}, "mtp-accept": {"exact", "ratio"},
		"draft": {"mtp", "ngram", "auto"}, "draft-vocab": {"auto", "all"},
	} {
		mustFlag(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
	}
}

// validate refuses flags that contradict each other.
func (f *draftFlags) validate() error {
	switch {
	case f.mtp.value == "off" && (f.drafter.value == "mtp" || f.drafter.value == "auto"):
		return usagef("--mtp=off and --draft %s cannot be combined: --draft %[1]s needs the head; use --draft ngram", f.drafter.value)
	case f.mtp.value == "on" && f.drafter.value == "ngram":
		return usagef("--draft ngram and --mtp=on cannot be combined: use --draft auto for both")
	}
	return nil
}

// possible reports whether the flags allow draft tokens.
func (f *draftFlags) possible() bool {
	return f.depth.value != spec.DepthOff && (f.mtp.value != "off" || f.drafter.given)
}

// options are what the flags ask for.
func (f *draftFlags) options() foretoken.Speculation {
	o := foretoken.Speculation{Depth: f.depth.value, Vocab: f.vocab.or(vocabAuto), NoSelfTest: f.noSelfTest}
	if !f.possible() {
		o.Depth = foretoken.DepthOff
	}
	o.Rule = foretoken.Rule(f.accept.value)
	switch {
	case f.mtp.value == "on", f.drafter.value == "mtp":
		o.Head = foretoken.HeadRequired
	case f.mtp.value == "off", f.drafter.value == "ngram":
		o.Head = foretoken.HeadOff
	}
	o.Lookup = f.drafter.value == "ngram" || f.drafter.value == "auto"
	return o
}

// describeSelfTest is the line on a self-test. Its rates are those of speculation stats: how
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

// describeSpeculation is the line on the speculation stats of an answer.
func describeSpeculation(r *foretoken.SpeculationStats) string {
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
	line := fmt.Sprintf("%s: %s in %s", drafter, counted(r.Rounds+r.Accepted+r.Forced, "token"), counted(r.Rounds, "round"))
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
