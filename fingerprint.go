package foretoken

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/models"
	"github.com/foretoken/foretoken/internal/spec"
)

func newSource(path string, o Options, c *checkpoint.Checkpoint) source {
	return source{path: path, projector: o.Vision.Projector, stamp: c.Stamp(), quantize: o.Quantize, kvBits: o.KVBits, drafter: o.Speculation.Drafter}
}

// Fingerprint identifies everything that affects an answer besides its request and seed: every byte of the
// weights, tokenizer, templates, arithmetic, and the options that change tokens. Models with equal
// fingerprints give equal answers, on any machine with enough memory. Weights are hashed at the first
// call, which takes seconds for large ones; digests are kept in the folder records, "" for none.
func (m *Model) Fingerprint(ctx context.Context, records string) (id string, err error) {
	s := &m.source
	if s.path == "" {
		return "", errors.New("foretoken: the model was not opened by name")
	}
	c, err := models.Open(s.path, s.projector)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if c.Stamp() != s.stamp {
		return "", fmt.Errorf("model %s: its files changed since it was loaded: load it again", m.name)
	}
	sum, err := c.Sum(ctx, records)
	if err != nil {
		return "", err
	}
	text, err := c.ReadFile("tokenizer.json")
	if err != nil {
		return "", err
	}
	rule := spec.Exact // drafts that are accepted by chance change tokens, and so does their number
	if m.draft.drafter != nil {
		rule = m.draft.rule
	}
	drafts := ""
	if m.drafter != nil && rule == spec.Ratio {
		if drafts, err = drafterID(ctx, s.drafter, records); err != nil {
			return "", err
		}
	}
	recommended, err := json.Marshal(m.generates)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%s\n%d %d %q %q\n%x\n%#v\n%s\n", m.identity(sum.ID, s.quantize), s.kvBits, m.context, rule, m.visionName(), sha256.Sum256(text), m.text.Templates(), recommended) // a hash does not fail
	if drafts != "" {
		_, _ = fmt.Fprintf(h, "drafter %s\n", drafts)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// drafterID identifies the file of a drafter.
func drafterID(ctx context.Context, path, records string) (id string, err error) {
	c, err := models.Open(path, "")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	sum, err := c.Sum(ctx, records)
	return sum.ID, err
}

// visionName says whether images are accepted.
func (m *Model) visionName() string {
	if m.vision() == nil {
		return "blind"
	}
	return "sees"
}
