package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// copyPass copies the states of the pass that is to begin, if it is computed again.
func (e *Engine) copyPass() error {
	s := &e.shadow
	if s.Every == 0 || !slices.ContainsFunc(e.spans, func(x model.Span) bool { return x.Want > 0 }) {
		return nil
	}
	if s.passes++; s.passes < s.Every {
		return nil
	}
	s.passes = 0
	for i := range e.spans {
		if e.spans[i].Want == 0 {
			continue
		}
		if err := s.add(&e.spans[i], e.pool.Device()); err != nil {
			s.drop()
			if errors.Is(err, state.ErrFull) {
				e.o.Log.Warn("a pass is not computed again for lack of memory", "error", err)
				return nil
			}
			return fmt.Errorf("engine: computing a pass again: %w", err)
		}
	}
	return nil
}

// compare computes the pass that has landed again, if its states were copied, and returns an error if a logit has other bits.
func (e *Engine) compare() error {
	s := &e.shadow
	if len(s.spans) == 0 {
		return nil
	}
	start := time.Now()
	if err := e.out.Wait(); err != nil {
		return err
	}
	e.queued += time.Since(start)
	got, err := logitsOf(&e.out)
	if err != nil {
		return err
	}
	out, err := s.Model.Forward(s.spans)
	if err != nil {
		return fmt.Errorf("engine: computing a pass again: %w", err)
	}
	want, err := logitsOf(&out)
	if err != nil {
		return fmt.Errorf("engine: computing a pass again: %w", err)
	}
	if i := dtype.Differ(got, want); i >= 0 {
		return &differentError{fmt.Sprintf("logit %d of row %d of a pass of %d sequences is 0x%08x on %s, and 0x%08x on %s, from the same state",
			i%out.Logits.Cols, i/out.Logits.Cols, len(e.batch), binary.LittleEndian.Uint32(got[4*i:]), e.pool.Device().Name(), binary.LittleEndian.Uint32(want[4*i:]), out.Device.Name())}
	}
	return nil
}
