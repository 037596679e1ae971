package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/spec"
)

// draftFlags say what guesses tokens ahead, and how.
type draftFlags struct {
	mtp        setting[string] // auto if not given
	drafter    setting[string] // mtp if not given and there is a head
	depth      setting[int]
	accept     setting[string]
	vocab      setting[int]
	noSelfTest bool
}

// Values of flags that are words, beside the numbers.
const (
	depthAuto = -1
	vocabAuto = 0
	vocabAll  = -1
)

func newDraftFlags() *draftFlags {
	return &draftFlags{
		mtp:     choice("auto", "on", "off"),
		drafter: choice("mtp", "ngram", "auto"),
		depth:   worded("auto|0..8", map[string]int{"auto": depthAuto}, 0, spec.MaxDepth),
		accept:  choice(spec.Exact.String(), spec.Ratio.String()),
		vocab:   worded("auto|all|N", map[string]int{"auto": vocabAuto, "all": vocabAll}, 1, math.MaxInt32),
	}
}

func (f *draftFlags) group() flagGroup {
	g := newFlagGroup("Guessing ahead (changes the speed; the text only with --mtp-accept ratio)")
	fs := g.flags.Flags()
	fs.SortFlags = false
	fs.Var(&f.mtp, "mtp", "use the checkpoint's multi-token-prediction head (default auto: if it has one)")
	fs.Var(&f.depth, "mtp-depth", "tokens to guess at once (default auto: as many as pay)")
	fs.Var(&f.accept, "mtp-accept", "rule for guesses: exact keeps the text, ratio its distribution (default exact)")
	fs.Var(&f.drafter, "draft", "what guesses: the head, repetitions in the text, or both (default mtp, without a head nothing)")
	fs.Var(&f.vocab, "draft-vocab", "how many frequent tokens the head guesses among, besides those of the text (default auto: as many as pay)")
	fs.BoolVar(&f.noSelfTest, "no-self-test", false, "do not try the head when a checkpoint folder is loaded")
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
		return usagef("--mtp=off leaves out the head, which --draft %s needs; --draft ngram does not", f.drafter.value)
	case f.mtp.value == "on" && f.drafter.value == "ngram":
		return usagef("--draft ngram leaves out the head, which --mtp=on asks for; --draft auto uses both")
	}
	return nil
}

// possible reports whether tokens may be guessed, as far as the flags go.
func (f *draftFlags) possible() bool {
	return f.depth.or(depthAuto) != 0 && (f.mtp.value != "off" || f.drafter.given)
}

// options are what the flags ask for.
func (f *draftFlags) options() foretoken.Draft {
	o := foretoken.Draft{Off: !f.possible(), Depth: max(f.depth.or(depthAuto), 0), Vocab: f.vocab.or(vocabAuto), NoTest: f.noSelfTest}
	o.Rule, _ = spec.ParseRule(f.accept.or(spec.Exact.String())) // one of its names
	switch {
	case f.mtp.value == "on", f.drafter.value == "mtp":
		o.Head = foretoken.HeadRequired
	case f.mtp.value == "off", f.drafter.value == "ngram":
		o.Head = foretoken.HeadOff
	}
	o.Lookup = f.drafter.value == "ngram" || f.drafter.value == "auto"
	return o
}

// describeSelfTest is a self-test's line. Its rates are those of a receipt: how often a
// guess and all before it are right.
func describeSelfTest(v *measure.SelfTestResult) string {
	rates, all := "", 1.0
	for j := range v.Drafted {
		if v.Drafted[j] > 0 {
			all *= v.Rate(j)
			rates += fmt.Sprintf(" %.2f", all)
		}
	}
	among := ""
	if v.DraftVocab > 0 {
		among = fmt.Sprintf(" among %d tokens", v.DraftVocab)
	}
	return fmt.Sprintf("mtp: head accepts%s, a guess%s costs %.2f of a step, best depth %d, expected %.2f times plain",
		rates, among, v.DraftTime.Seconds()/v.StepTime.Seconds(), v.Depth, v.Speedup)
}

// describeReceipt is the line on what guessing did for an answer.
func describeReceipt(r *spec.Stats) string {
	var rates []string
	for j, n := range r.DraftedAt {
		if n > 0 {
			rates = append(rates, fmt.Sprintf("%.2f", float64(r.AcceptedAt[j])/float64(n)))
		}
	}
	line := fmt.Sprintf("%s: %s in %s", r.Drafter, counted(r.Rounds+r.Accepted, "token"), counted(r.Rounds, "round"))
	if r.Drafted == 0 {
		return line + ", no guesses"
	}
	m := r.Summary()
	line = fmt.Sprintf("%s (%.2f per round), accepted %d of %d guesses (%s), depth %.1f",
		line, m.TokensPerRound, r.Accepted, r.Drafted, strings.Join(rates, " "), m.MeanDepth)
	if m.SpeedupEstimate > 0 { // there was a plain round to compare with
		line += fmt.Sprintf(", about %.2f times plain", m.SpeedupEstimate)
	}
	return line
}
