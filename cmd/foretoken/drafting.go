package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/checkpoint"
	"github.com/foretoken/foretoken/engine"
	"github.com/foretoken/foretoken/spec"
	"github.com/foretoken/foretoken/spec/ngram"
	"github.com/foretoken/foretoken/state"
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

// rule is the rule of acceptance.
func (f *draftFlags) rule() spec.Rule {
	r, _ := spec.ParseRule(f.accept.or(spec.Exact.String())) // one of its names
	return r
}

// drafting is what guesses tokens for a session.
type drafting struct {
	drafter spec.Drafter // nil: nothing
	head    spec.Drafter // the model's own, if it is used
	depth   int          // as engine.Request has it
	rule    spec.Rule
	verdict string // of the self-test, for people; empty if there was none
}

// drafting chooses what the flags ask for. config is the checkpoint's config.json.
func (s *session) drafting(f *draftFlags, config []byte) (drafting, error) {
	d := drafting{depth: f.depth.or(depthAuto), rule: f.rule()}
	var head spec.Drafter
	if m, ok := s.model.(interface{ Drafter() spec.Drafter }); ok {
		head = m.Drafter()
	}
	if head == nil && (f.mtp.value == "on" || f.drafter.value == "mtp") {
		return d, fmt.Errorf("model %s: %w", s.name, noHead(config))
	}
	if !f.possible() {
		return d, nil
	}
	if !f.drafter.given || f.drafter.value == "mtp" {
		d.head, d.drafter = head, head
		return d, nil
	}
	lookup, err := ngram.New(ngram.Options{})
	if err != nil {
		return d, err
	}
	d.drafter = lookup
	if head != nil && f.drafter.value == "auto" {
		d.head, d.drafter = head, spec.Auto(head, lookup)
	}
	return d, nil
}

// String says what guesses, for people.
func (d *drafting) String() string {
	if d.drafter == nil {
		return "none"
	}
	depth := "as deep as pays"
	if d.depth >= 0 {
		depth = fmt.Sprintf("%d deep", d.depth)
	}
	return fmt.Sprintf("by %s, %s, accepted by the %s rule", d.drafter.Name(), depth, d.rule)
}

// noHead is the error for a checkpoint without the head that the flags ask for.
func noHead(config []byte) error {
	type promise struct {
		MTP  checkpoint.Whole `json:"mtp_num_hidden_layers"`
		Next checkpoint.Whole `json:"num_nextn_predict_layers"`
	}
	var cfg struct {
		promise
		Text promise `json:"text_config"`
	}
	_ = json.Unmarshal(config, &cfg) // the model has been opened with it
	const remedy = "or use --mtp=off (or --draft ngram, which needs no head)"
	n := max(cfg.MTP, cfg.Next, cfg.Text.MTP, cfg.Text.Next)
	if n == 0 {
		return errors.New("the checkpoint has no multi-token-prediction head, neither by config.json nor by its tensors: choose one with a head, " + remedy)
	}
	return fmt.Errorf("the weights have no mtp.* tensors (mtp.fc, mtp.norm, mtp.pre_fc_norm_embedding, mtp.pre_fc_norm_hidden, mtp.layers.0.*), "+
		"although config.json promises a head (mtp_num_hidden_layers %d): a converter dropped them; "+
		"get the original shards, or a head file mtp.safetensors beside the weights, %s", n, remedy)
}

// budget is the memory that a sequence of the session's length needs.
func (s *session) budget(pages int) int64 {
	layouts := []state.Layout{s.model.Layout()}
	if s.draft.drafter != nil {
		layouts = append(layouts, s.draft.drafter.Layout())
	}
	n := int64(0)
	for _, l := range layouts {
		n += l.RecurrentBytes() + int64(pages)*l.PageBytes()
	}
	return n
}

// selfTestTime is about how long a self-test may take. A slow model takes the time of some
// twenty tokens whatever this says.
const selfTestTime = 2 * time.Second

// selfTestText is what a self-test reads: plain prose, and something a program would say.
const selfTestText = `Once upon a time there was a little girl named Lily. She lived in a small house near a big
forest with her mother and her dog. One day she went outside to play and saw a bird under a tree.
The bird was sad because its wing was hurt. Lily took the bird home and gave it some water. Her
mother was very proud of her.

for i in range(10):
    print(i, i + 1)
`

// selfTest tries the head on a short text, says what it found, and returns what it has
// learnt for the engine: nothing if there is no head, or if it is not to be tried.
func (s *session) selfTest(f *modelFlags, pool *state.Pool) (*spec.Controller, error) {
	text := s.tok.Encode(selfTestText)
	text = text[:min(len(text), s.context)]
	// The embedded model is known to be good, and starts at once.
	if s.draft.head == nil || f.draft.noSelfTest || f.model == embeddedName || len(text) < engine.TestTokens/2 {
		return nil, nil
	}
	v, err := engine.SelfTest(s.model, pool, s.draft.head, text, s.vocab, selfTestTime)
	if err != nil {
		return nil, fmt.Errorf("model %s: self-test of the head: %w; --no-self-test leaves it out", s.name, err)
	}
	s.draft.verdict = describeVerdict(v)
	if v.Broken() {
		s.notes.warn("mtp: only %d of %d guesses of the head were right, where a sound head gets more than half: "+
			"its norms were shifted by one twice or not at all, its fc is permuted, it is still at its random initialisation, or it belongs to another model; "+
			"compare the checkpoint with the original, or use --mtp=off", v.Held[0], v.Tried[0])
	}
	return v.Controller, nil
}

// describeVerdict is a self-test's line. Its rates are those of a receipt: how often a
// guess and all before it are right.
func describeVerdict(v *engine.Verdict) string {
	rates, all := "", 1.0
	for j := range v.Tried {
		if v.Tried[j] > 0 {
			all *= v.Rate(j)
			rates += fmt.Sprintf(" %.2f", all)
		}
	}
	among := ""
	if v.Among > 0 {
		among = fmt.Sprintf(" among %d tokens", v.Among)
	}
	return fmt.Sprintf("mtp: head accepts%s, a guess%s costs %.2f of a step, best depth %d, expected %.2f times plain",
		rates, among, v.Guess.Seconds()/v.Step.Seconds(), v.Depth, v.Speedup)
}

// describeReceipt is the line on what guessing did for an answer.
func describeReceipt(r *spec.Receipt) string {
	var rates []string
	for j, n := range r.Tried {
		if n > 0 {
			rates = append(rates, fmt.Sprintf("%.2f", float64(r.At[j])/float64(n)))
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
