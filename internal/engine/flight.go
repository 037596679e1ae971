package engine

import (
	"log/slog"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
)

// group is the sequences of a round. On a device of several stages several rounds are in flight: while a stage computes
// the pass of one group, others compute those of other groups. A chunk of a prompt is in a group of its own, or beside others.
type group struct {
	number int          // of the memory of its pass, see model.Grouped
	batch  []*sequence  // that the round feeds
	spans  []model.Span // of the batch
	out    model.Output
	err    error

	flight backend.Flight // nil: the pass was not launched
	spent  time.Duration  // by the engine, before the pass has been computed
	queued time.Duration  // by the pass, before it is waited for
	before int64          // passes that were prepared before it
}

// pipeline is the stages of a device.
type pipeline struct {
	backend.Pipeline               // nil: the device computes nothing ahead
	model            model.Grouped // computes on it
	flying           []*group      // whose passes are launched, in order
	groups           []*group      // by number
	longest          float64       // share of the stage that takes longest in the time of a pass; 0: not measured
	settling         bool          // nothing is launched until all rounds have ended: memory is needed that they may use
}

// withdraw leaves it at one round at a time: a pass could not be launched, probably for lack of memory for those of several groups.
// A panic is no reason.
func (p *pipeline) withdraw(log *slog.Logger, err error) {
	if _, panicked := stackOf(err); panicked || backend.Lost(err) || p.Pipeline == nil {
		return
	}
	log.Warn("from now on one round is computed at a time", "error", err)
	p.model.Group(0)
	p.Pipeline = nil
}

// discard drops all rounds in flight, whose sequences restart or end. The device does not compute for them any more when it
// returns.
func (p *pipeline) discard() {
	for _, g := range p.flying {
		for _, s := range g.batch {
			s.flying, s.ahead = 0, 0
		}
		if g.flight != nil {
			_ = try(func() { _, _ = g.flight.Wait() }) // the round that has failed has told of it
		}
	}
	p.flying, p.settling = p.flying[:0], false
}
