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

// Shadow computes passes a second time on another device, from the same states. Their logits must have the same bits.
type Shadow struct {
	Model model.Model // the engine's; its head is not used
	Pool  *state.Pool // on its device
	Every int         // one of Every passes with logits is computed
}

// shadow is a Shadow and what it has of the current pass.
type shadow struct {
	Shadow
	passes int          // with logits since the last that was computed again
	spans  []model.Span // those with logits, with states and rows on its device; none: the pass is not computed again
	rows   []func()     // free the rows of spans
}

// due reports whether the next pass with logits is computed again. Such a pass is the only one in flight, so that its states are
// known.
func (s *shadow) due() bool { return s.Every > 0 && s.passes+1 >= s.Every }

// drop frees what the shadow has of a pass.
func (s *shadow) drop() {
	for i := range s.spans {
		s.spans[i].State.Close()
	}
	for _, free := range s.rows {
		free()
	}
	s.spans, s.rows = s.spans[:0], s.rows[:0]
}

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
		if err := s.add(e, &e.spans[i]); err != nil {
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

// add copies a span with its state.
func (s *shadow) add(e *Engine, span *model.Span) error {
	x, err := span.State.Save()
	if err != nil {
		return err
	}
	data, err := x.AppendTo(nil)
	x.Close() // before the pass: pages with two references are copied
	if err != nil {
		return err
	}
	own := *span
	if own.State, err = s.Pool.Open(s.Model.Layout()); err != nil {
		return err
	}
	own.Inputs = slices.Clone(own.Inputs)
	s.spans = append(s.spans, own)
	read, err := s.Pool.ReadSnapshot(s.Model.Layout(), data, nil) // no pages were detached
	if err != nil {
		return err
	}
	defer read.Close()
	if err := own.State.Load(read); err != nil {
		return err
	}
	if span.State.Drafts() > own.State.Drafts() {
		if err := own.State.Deepen(); err != nil {
			return err
		}
	}
	for i := range own.Inputs {
		rows := &own.Inputs[i].Rows
		data := make([]byte, rows.Rows*rows.Cols*rows.Type.Size())
		if err := e.pool.Device().ReadBytes(data, *rows); err != nil {
			return err
		}
		device := s.Pool.Device()
		t, err := device.Alloc(rows.Type, rows.Rows, rows.Cols)
		if err != nil {
			return err
		}
		*rows, s.rows = t, append(s.rows, func() { device.Free(t) })
		if err := device.WriteBytes(t, data); err != nil {
			return err
		}
	}
	return own.State.Reserve(len(own.Tokens))
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

// logitsOf are the bytes of all logits of a pass.
func logitsOf(out *model.Output) ([]byte, error) {
	data := make([]byte, 4*out.Logits.Rows*out.Logits.Cols)
	return data, out.Device.ReadBytes(data, out.Logits)
}

// differentError is that of a device that computes other bits than another one. Its tokens would be wrong, so it is not used any more.
type differentError struct{ what string }

func (e *differentError) Error() string {
	return "engine: the device computes wrong results: " + e.what + ": use --device cpu, update the driver of the device, and report this with the output of 'foretoken devices'"
}

// DeviceLost makes it an error after which nothing more is served: see backend.Lost.
func (e *differentError) DeviceLost() bool { return true }
