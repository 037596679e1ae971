package foretoken

import (
	"errors"
	"fmt"
	"time"

	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/mtp"
	"github.com/foretoken/foretoken/internal/spec/ngram"
	"github.com/foretoken/foretoken/internal/state"
)

// Speculation says what drafts tokens, and how. The zero value uses the checkpoint's head if it
// has one, and repetitions in the text, at the depth that pays. It changes the speed of an answer; its text only under the
// ratio rule.
type Speculation struct {
	Depth      Depth   // tokens to draft per round; DepthOff: none but those that a grammar forces, and a head is not loaded
	Head       HeadUse // of the checkpoint's multi-token-prediction head
	NoLookup   bool    // do not draft from repetitions in the text
	Rule       Rule    // which drafts are accepted
	Vocab      int     // size of the draft vocabulary of the head, its most frequent tokens; 0: auto (fastest), -1: all
	NoSelfTest bool    // do not try the head when a checkpoint is loaded
}

// Rule says which draft tokens are accepted. "" is Exact in Speculation, and that of the model in
// a Request.
type Rule string

const (
	// Exact accepts a draft if it is the token that the model draws itself with the noise of
	// that position. The text is that of plain decoding, at every temperature.
	Exact Rule = "exact"
	// Ratio accepts a draft x with probability min(1, p(x)/q(x)). Texts have the model's
	// distribution, but are not those of plain decoding.
	Ratio Rule = "ratio"
)

// or is the rule in the engine's terms, otherwise where r names none.
func (r Rule) or(otherwise spec.Rule) (spec.Rule, error) {
	if r == "" {
		return otherwise, nil
	}
	return spec.ParseRule(string(r))
}

// Depth is how many tokens are drafted per round: a number from 1 to MaxDepth, DepthAuto or
// DepthOff; its zero value is DepthDefault. Under the exact rule it changes the speed of an answer and never its text.
type Depth int

// MaxDepth is the maximum number of tokens drafted per round.
const MaxDepth = spec.MaxDepth

const (
	// DepthDefault is the zero value: in a Request the depth that the model was opened with, in
	// Speculation DepthAuto.
	DepthDefault Depth = 0
	// DepthAuto is the depth that gives most tokens per second, by what is measured on the way.
	DepthAuto Depth = -2
	// DepthOff drafts nothing that could be rejected: plain decoding, but for tokens that a
	// grammar forces.
	DepthOff Depth = -1
)

// String is the number of tokens, "auto" or "off".
func (d Depth) String() string {
	if d == DepthAuto {
		d = DepthDefault
	}
	return spec.Depth(d).String()
}

// or is the depth in the engine's terms, otherwise where d is DepthDefault.
func (d Depth) or(otherwise spec.Depth) (spec.Depth, error) {
	switch {
	case d == DepthDefault:
		return otherwise, nil
	case d == DepthAuto:
		return spec.DepthAuto, nil
	case !spec.Depth(d).Valid():
		return 0, fmt.Errorf("foretoken: depth %v, want off, auto or up to %d tokens", d, MaxDepth)
	}
	return spec.Depth(d), nil
}

// usesHead reports whether a head is loaded, if the checkpoint has one.
func (o Speculation) usesHead() bool { return o.Depth != DepthOff && o.Head != HeadOff }

// HeadUse says whether the head drafts.
type HeadUse uint8

// The uses of a head.
const (
	HeadAuto     HeadUse = iota // if there is one
	HeadRequired                // its absence is an error
	HeadOff                     // it is not loaded
)

// ErrNoHead is wrapped by the error for a checkpoint without the head that was required.
var ErrNoHead = errors.New("no multi-token-prediction head")

// headError says what a checkpoint has of a head.
type headError string

func (e headError) Error() string        { return string(e) }
func (e headError) Is(target error) bool { return target == ErrNoHead }

// drafting is what drafts tokens for a model.
type drafting struct {
	drafter spec.Drafter // nil: none
	head    spec.Drafter // the model's own, if it is used
	depth   spec.Depth
	rule    spec.Rule
	tested  *SelfTest // nil if there was none
}

// drafting is what the options ask for. config is the checkpoint's config.json.
func (m *Model) drafting(o Speculation, config []byte) (drafting, error) {
	var d drafting
	var err error
	if d.rule, err = o.Rule.or(spec.Exact); err != nil {
		return d, err
	}
	if d.depth, err = o.Depth.or(spec.DepthAuto); err != nil {
		return d, err
	}
	if o.Head == HeadRequired && !m.info.Head {
		return d, fmt.Errorf("model %s: %w", m.name, m.noHead(config))
	}
	if d.depth == spec.DepthOff {
		return d, nil
	}
	if h := m.model.Head(); h != nil {
		d.head = mtp.New(h, mtp.Options{Vocab: m.info.Vocab, DraftVocab: o.Vocab, Control: m.tok.Added()})
	}
	if d.drafter = d.head; o.NoLookup {
		return d, nil
	}
	lookup, err := ngram.New(ngram.Options{})
	if err != nil {
		return d, err
	}
	if d.drafter = lookup; d.head != nil {
		d.drafter = spec.Auto(d.head, lookup)
	}
	return d, nil
}

// noHead is the error for a checkpoint without a head.
func (m *Model) noHead(config []byte) error {
	if m.family.NoHead == nil {
		return headError("the checkpoint has no multi-token-prediction head: choose a checkpoint with a head")
	}
	return headError(m.family.NoHead(config))
}

// Drafter names what drafts, "" if nothing does.
func (m *Model) Drafter() string {
	if m.draft.drafter == nil {
		return ""
	}
	return m.draft.drafter.Name()
}

// Drafting describes how tokens are drafted, for people.
func (m *Model) Drafting() string {
	d := &m.draft
	if d.drafter == nil {
		return "none"
	}
	return fmt.Sprintf("by %s, depth %v, accepted by the %s rule", d.drafter.Name(), d.depth, d.rule)
}

// SelfTest is what a short text has told about the head when the model was loaded.
type SelfTest struct {
	Drafted, Accepted []int         // by position in the draft; drafts after a rejected one do not count
	StepTime          time.Duration // of a pass over one token
	DraftTime         time.Duration // of one draft token
	Depth             int           // the fastest
	Speedup           float64       // expected at that depth, as a multiple of plain decoding
	Vocab             int           // size of the fastest draft vocabulary; 0: it was not for the test to choose
}

// SelfTest returns the result of the self-test, nil if there was none.
func (m *Model) SelfTest() *SelfTest { return m.draft.tested }

// selfTestTime is about how long a self-test may take. A slow model takes the time of some
// twenty tokens whatever this says.
const selfTestTime = 2 * time.Second

// selfTestText is the text of a self-test: plain prose, and something a program would say.
const selfTestText = `Once upon a time there was a little girl named Lily. She lived in a small house near a big
forest with her mother and her dog. One day she went outside to play and saw a bird under a tree.
The bird was sad because its wing was hurt. Lily took the bird home and gave it some water. Her
mother was very proud of her.

for i in range(10):
    print(i, i + 1)
`

// selfTest tries the head on a short text and returns the controller that has seen it, for the
// engine: nil if there is no head, or if it is not to be tried. The model inside the program is
// known to be good, and starts at once.
func (m *Model) selfTest(o Speculation, pool *state.Pool) (*spec.Controller, error) {
	text := m.tok.Encode(selfTestText)
	text = text[:min(len(text), m.context)]
	if m.draft.head == nil || o.NoSelfTest || m.builtIn || len(text) < measure.TestTokens/2 {
		return nil, nil
	}
	r, err := measure.SelfTest(m.model, pool, m.draft.head, text, m.text.Vocab(), selfTestTime)
	if err != nil {
		return nil, fmt.Errorf("model %s: self-test of the head: %w", m.name, err)
	}
	m.draft.tested = &SelfTest{
		Drafted: r.Drafted[:], Accepted: r.Accepted[:], StepTime: r.StepTime, DraftTime: r.DraftTime, Depth: r.Depth, Speedup: r.Speedup, Vocab: r.DraftVocab,
	}
	if r.Broken() {
		m.log.Warn(fmt.Sprintf("mtp: only %d of %d drafts of the head were accepted, but an intact head has more than half: "+
			"its norms were shifted by one twice or not at all, its fc is permuted, it is untrained, or it belongs to another model; "+
			"foretoken doctor finds the cause", r.Accepted[0], r.Drafted[0]))
	}
	return r.Controller, nil
}
