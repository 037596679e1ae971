package foretoken

import (
	"cmp"
	"context"
	"fmt"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/drafter"
	"github.com/foretoken/foretoken/internal/models"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/block"
	"github.com/foretoken/foretoken/internal/spec/mtp"
)

// findDrafter opens the files of the model's drafter, and sets its path in the options. It is nil if there is none. An error names
// a drafter that does not fit, before any weights are loaded.
func (m *Model) findDrafter(o *Speculation, of *checkpoint.Checkpoint) (*checkpoint.Checkpoint, error) {
	if o.Drafter == "" && o.Depth != DepthOff {
		var err error
		if o.Drafter, err = models.FindDrafter(of.Name(), m.name, nil); err != nil {
			m.log.Warn(err.Error())
		}
	}
	if o.Drafter == DrafterOff || o.Depth == DepthOff {
		o.Drafter = ""
	}
	if o.Drafter == "" {
		return nil, nil
	}
	return models.OpenDrafter(o.Drafter, of)
}

// openDrafter loads a drafter for the model. With sum it is hashed, for the identity of stored prefixes.
func (m *Model) openDrafter(ctx context.Context, c *checkpoint.Checkpoint, o model.Options, sum bool) (err error) {
	target, ok := m.model.(model.Lender)
	if !ok {
		return fmt.Errorf("model %s: models of its family cannot be used with a drafter", m.name)
	}
	if m.drafter, err = drafter.Open(c, target, m.backend, o); err != nil {
		return fmt.Errorf("drafter %s: %w", c.Name(), err)
	}
	if sum {
		s, err := c.Sum(ctx, "")
		if err != nil {
			return fmt.Errorf("drafter %s: %w", c.Name(), err)
		}
		m.drafterSum = s.ID
	}
	m.log.Info(fmt.Sprintf("%s: %s drafter of %.1f MB in memory", m.name, m.drafter.Kind, float64(m.drafter.Bytes)/1e6))
	return nil
}

// computed are the drafters that compute their drafts: the model's head, and the drafter of a file.
func (m *Model) computed(vocab int) (list []spec.Drafter) {
	if h := m.model.Head(); h != nil {
		list = append(list, mtp.New(h, mtp.Options{Vocab: m.info.Vocab, DraftVocab: vocab, Control: m.tok.Added()}))
	}
	switch d := m.drafter; {
	case d == nil:
	case d.Head != nil:
		list = append(list, mtp.New(d.Head, mtp.Options{
			Name: d.Name(), Vocab: m.info.Vocab, DraftVocab: cmp.Or(vocab, d.DraftVocab()), Taps: d.Taps, Tokens: d.Tokens, Control: m.tok.Added(),
		}))
	default:
		list = append(list, block.New(d.Block, block.Options{Vocab: m.info.Vocab, DraftVocab: vocab, Taps: d.Taps, Tokens: d.Tokens, Control: m.tok.Added()}))
	}
	return list
}
