package engine

import (
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
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

// add copies a span with its state, and its rows, which are on the device from.
func (s *shadow) add(span *model.Span, from backend.Backend) error {
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
		if err := from.ReadBytes(data, *rows); err != nil {
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
