package foretoken

import (
	"errors"
	"fmt"
	"time"

	"github.com/foretoken/foretoken/internal/spec"
)

// Speculation configures drafting. The zero value uses the checkpoint's head if it
// has one, and repetitions in the text, at the fastest depth. It changes the speed of an answer; its text only under the
// ratio rule.
type Speculation struct {
	Depth Depth   // tokens to draft per round; DepthOff: none but those that a grammar forces, and a head is not loaded
	Head  HeadUse // of the checkpoint's multi-token-prediction head
	// Drafter is a drafter that competes with the head, by expected tokens per second: a folder or a GGUF file with a
	// DFlash, DFlash2, DSpark or EAGLE-3 drafter, or Gemma 4 assistant, made for the model. "": the one beside the model, if there is one;
	// DrafterOff: none.
	Drafter    string
	NoLookup   bool // do not draft from repetitions in the text
	Rule       Rule // which drafts are accepted
	Vocab      int  // size of the draft vocabulary of the head, its most frequent tokens; 0: auto (fastest), -1: all
	NoSelfTest bool // do not try the head when a checkpoint is loaded
}

// Rule decides which draft tokens are accepted. "" is Exact in Speculation, and that of the model in
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

// or is the rule in the engine's terms, otherwise if r is "".
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
const MaxDepth = 8

const (
	// DepthDefault is the zero value: in a Request the depth that the model was opened with, in
	// Speculation DepthAuto.
	DepthDefault Depth = 0
	// DepthAuto is the depth with the most tokens per second, by measurements during decoding.
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

// DrafterOff is the Speculation.Drafter that uses no drafter in files of its own.
const DrafterOff = "off"

// usesHead reports whether a head is loaded, if the checkpoint has one.
func (o Speculation) usesHead() bool {
	return o.Depth != DepthOff && o.Head != HeadOff
}

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

// headError describes the incomplete head of a checkpoint.
type headError string

func (e headError) Error() string { return string(e) }

func (e headError) Is(target error) bool { return target == ErrNoHead }

// drafting is the drafting of a model.
type drafting struct {
	drafter  spec.Drafter   // nil: none
	computed []spec.Drafter // those among it that compute drafts: the model's head, the drafter of a file
	depth    spec.Depth
	rule     spec.Rule
	tested   *SelfTest // of the last of computed; nil without a self-test
}

// SelfTest is the result of the self-test of the head or the drafter when the model was loaded.
type SelfTest struct {
	Drafter           string        // the kind of drafter, such as "DSpark"; "mtp": the head
	Drafted, Accepted []int         // by position in the draft; drafts after a rejected one do not count
	StepTime          time.Duration // of a pass over one token
	DraftTime         time.Duration // of one draft token
	Depth             int           // the fastest
	Speedup           float64       // expected at that depth, as a multiple of plain decoding
	Vocab             int           // size of the fastest draft vocabulary; 0: it was not for the test to choose
}
