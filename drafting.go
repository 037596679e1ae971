package foretoken

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/ngram"
	"github.com/foretoken/foretoken/internal/state"
)

// Draft says what guesses tokens ahead, and how. It changes the speed of an answer, and its
// text only under spec.Ratio.
type Draft struct {
	Off    bool      // guess nothing
	Head   HeadUse   // of the checkpoint's multi-token-prediction head
	Lookup bool      // guess from repetitions in the text, too
	Depth  int       // tokens to guess at once, up to spec.MaxDepth; 0: as many as pay
	Rule   spec.Rule // which guesses are accepted
	Vocab  int       // frequent tokens that the head guesses among; 0: what pays, -1: all
	NoTest bool      // do not try the head when a checkpoint is loaded
}

// HeadUse says whether the head guesses.
type HeadUse uint8

// The uses of a head.
const (
	HeadAuto     HeadUse = iota // if there is one
	HeadRequired                // its absence is an error
	HeadOff                     // it is left out
)

// ErrNoHead is what the error for a checkpoint without the head that was required is.
var ErrNoHead = errors.New("no multi-token-prediction head")

// headError says what is there of a head.
type headError string

func (e headError) Error() string        { return string(e) }
func (e headError) Is(target error) bool { return target == ErrNoHead }

// drafting is what guesses tokens for a model.
type drafting struct {
	drafter spec.Drafter // nil: nothing
	head    spec.Drafter // the model's own, if it is used
	depth   int          // as engine.Request has it
	rule    spec.Rule
	tested  *measure.SelfTestResult // nil if there was no self-test
}

// drafting chooses what is wanted. config is the checkpoint's config.json.
func (m *Model) drafting(o Draft, config []byte) (drafting, error) {
	d := drafting{depth: -1, rule: o.Rule}
	if o.Depth > 0 {
		d.depth = o.Depth
	}
	var head spec.Drafter
	if n, ok := m.network.(interface{ Drafter() spec.Drafter }); ok {
		head = n.Drafter()
	}
	if head == nil && o.Head == HeadRequired {
		return d, fmt.Errorf("model %s: %w", m.name, noHead(config))
	}
	if o.Off {
		d.depth = 0
		return d, nil
	}
	if o.Head != HeadOff {
		d.head = head
	}
	if d.drafter = d.head; !o.Lookup {
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
	n := max(cfg.MTP, cfg.Next, cfg.Text.MTP, cfg.Text.Next)
	if n == 0 {
		return headError("the checkpoint has no multi-token-prediction head, neither by config.json nor by its tensors: choose one with a head")
	}
	return headError(fmt.Sprintf("the weights have no mtp.* tensors (mtp.fc, mtp.norm, mtp.pre_fc_norm_embedding, mtp.pre_fc_norm_hidden, mtp.layers.0.*), "+
		"although config.json promises a head (mtp_num_hidden_layers %d): a converter dropped them; "+
		"get the original shards, or a head file mtp.safetensors beside the weights", n))
}

// Drafter names what guesses, "" if nothing does.
func (m *Model) Drafter() string {
	if m.draft.drafter == nil {
		return ""
	}
	return m.draft.drafter.Name()
}

// Drafting describes how tokens are guessed, for people.
func (m *Model) Drafting() string {
	d := &m.draft
	if d.drafter == nil {
		return "none"
	}
	depth := "as deep as pays"
	if d.depth >= 0 {
		depth = fmt.Sprintf("%d deep", d.depth)
	}
	return fmt.Sprintf("by %s, %s, accepted by the %s rule", d.drafter.Name(), depth, d.rule)
}

// SelfTest is what the self-test has found out about the head, nil if there was none.
func (m *Model) SelfTest() *measure.SelfTestResult { return m.draft.tested }

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

// selfTest tries the head on a short text and returns what it has learned for the engine:
// nothing if there is no head, or if it is not to be tried. The model inside the program is
// known to be good, and starts at once.
func (m *Model) selfTest(o Draft, pool *state.Pool) (*spec.Controller, error) {
	text := m.tok.Encode(selfTestText)
	text = text[:min(len(text), m.context)]
	if m.draft.head == nil || o.NoTest || m.builtIn || len(text) < measure.TestTokens/2 {
		return nil, nil
	}
	r, err := measure.SelfTest(m.network, pool, m.draft.head, text, m.vocab, selfTestTime)
	if err != nil {
		return nil, fmt.Errorf("model %s: self-test of the head: %w", m.name, err)
	}
	m.draft.tested = r
	if r.Broken() {
		m.log.Warn(fmt.Sprintf("mtp: only %d of %d guesses of the head were right, where a sound head gets more than half: "+
			"its norms were shifted by one twice or not at all, its fc is permuted, it is still at its random initialization, or it belongs to another model; "+
			"foretoken doctor finds out which", r.Accepted[0], r.Drafted[0]))
	}
	return r.Controller, nil
}
