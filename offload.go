package foretoken

import (
	"errors"
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/models"
	"github.com/foretoken/foretoken/internal/offload"
)

// Offload says what of a model lies on a device that has memory of its own, such as a GPU. The rest
// is computed by the host's processor, with the same bits. The zero value is as much as fits, where
// it is fastest.
type Offload struct {
	// Layers is how many layers lie on the device, the last ones, with output and head: a number,
	// LayersAuto or LayersOff. More than there are is all.
	Layers int
	// CPUExperts leaves the experts of all layers to the processor: most of the weights of such a
	// model, of which a token reads few.
	CPUExperts bool
}

const (
	// LayersAuto is the zero value: the number that gives most tokens per second, by free memory
	// and measured bandwidths.
	LayersAuto = offload.Auto
	// LayersOff has the processor compute everything.
	LayersOff = offload.None
)

// Placement is what one device has of a model.
type Placement struct {
	Device  string
	Layers  int      // how many
	Parts   []string // what, for people
	Weights int64    // about how many bytes
}

// Placement lists what the devices that compute have of the model.
func (m *Model) Placement() []Placement {
	if m.placement != nil {
		return m.placement
	}
	return []Placement{{Device: m.device, Layers: m.info.Layers, Parts: []string{"all"}, Weights: m.info.Bytes}}
}

// openDevice opens what to compute on: a device, and the host's processor beside it if the model is
// too large for one.
func (m *Model) openDevice(c *checkpoint.Checkpoint, o Options) error {
	b, plan, err := offload.For(c, o.Device, backend.Options{Threads: o.Threads, ISA: o.ISA, Log: m.log},
		offload.Want{Layers: o.Offload.Layers, CPUExperts: o.Offload.CPUExperts}, o.loading())
	switch {
	case errors.Is(err, offload.ErrAlone):
		return fmt.Errorf("%w: %w", ErrNoDevice, err)
	case errors.Is(err, ErrNoDevice):
		return err
	case err != nil:
		return fmt.Errorf("model %s: %w", m.name, err)
	}
	m.backend = b
	if plan == nil {
		return nil
	}
	if whole, _ := plan.Whole(); whole {
		return nil
	}
	for _, u := range plan.Uses() {
		m.placement = append(m.placement, Placement{Device: u.Name, Layers: u.Layers, Parts: u.Parts, Weights: u.Weights})
	}
	m.log.Info(fmt.Sprintf("%s: %s", m.name, plan))
	return nil
}

// loading is what the options load, for a plan of memory.
func (o *Options) loading() offload.Options {
	w := model.Options{Compute: backend.Compute(o.Compute), KVBits: o.KVBits}
	return offload.Options{
		Quantize: o.Quantize, KVBits: 8 * w.KVType().Size(), Context: o.Context, KVMemory: o.KVMemory,
		NoVision: o.Vision.Off, NoHead: !o.Speculation.usesHead(),
	}
}

// Size is about the bytes that the weights of a model take in memory, from the headers of its
// files. It is 0 if they cannot be read: Open says why.
func Size(path string, o Options) int64 {
	c, err := models.Open(path, o.Vision.Projector)
	if err != nil {
		return 0
	}
	defer c.Close() //nolint:errcheck // it was only read
	s, err := model.Survey(c)
	if err != nil {
		return 0
	}
	return offload.NewNeed(s, o.loading(), nil).Weights()
}
