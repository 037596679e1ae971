package jinja

import "fmt"

// Bounds of Parse. The longest chat templates in use are a tenth of this size
// and nest a dozen levels.
const (
	maxSource  = 512 << 10 // bytes
	maxNesting = 200       // blocks and brackets inside one another
	maxName    = 1000      // bytes of a name: to look one up counts as a step
)

// Limits bounds one rendering. A zero or negative field stands for its default.
type Limits struct {
	// Steps is how many units of work a rendering may take: one per expression
	// and statement evaluated, per element visited and per 64 bytes searched.
	// Default 10 million, about a second of work.
	Steps int
	// Bytes is how much a rendering may make in total, counting every string,
	// list and piece of output and what is remembered of whose they are, also
	// those no longer in use. Default 256 MiB.
	Bytes int
	// Depth is how deep calls, blocks, expressions and values may nest.
	// Default 1000.
	Depth int
}

const (
	defaultSteps = 10_000_000
	defaultBytes = 256 << 20
	defaultDepth = 1000
)

func (l Limits) orDefault() Limits {
	if l.Steps <= 0 {
		l.Steps = defaultSteps
	}
	if l.Bytes <= 0 {
		l.Bytes = defaultBytes
	}
	if l.Depth <= 0 {
		l.Depth = defaultDepth
	}
	return l
}

// LimitError says that a template went over a bound of Parse or Render.
type LimitError struct {
	What string // what there was too much of, such as "steps"
	Max  int    // how much was allowed
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("template needs more than the allowed %d %s", e.Max, e.What)
}

// step takes n units of work from the budget.
func (r *run) step(n int) error {
	if n > r.steps {
		r.steps = 0
		return &LimitError{What: "steps", Max: r.limits.Steps}
	}
	r.steps -= n
	return nil
}

// scan takes the work of looking through n bytes from the budget.
func (r *run) scan(n int) error { return r.step(1 + n/64) }

// alloc takes n bytes from the budget. It comes before the bytes are made, so
// that a refused request costs nothing.
func (r *run) alloc(n int) error {
	if n < 0 || n > r.bytes {
		r.bytes = 0
		return &LimitError{What: "bytes", Max: r.limits.Bytes}
	}
	r.bytes -= n
	return nil
}

// allocList takes the memory of n list slots, and the work of filling them, from
// the budget.
func (r *run) allocList(n int) error {
	if n < 0 || n > r.bytes/valueSize {
		return r.alloc(r.bytes + 1)
	}
	if err := r.alloc(n * valueSize); err != nil {
		return err
	}
	return r.step(n)
}

// enter counts one step and one level of nesting; leave gives the level back.
func (r *run) enter() error {
	if r.depth >= r.limits.Depth {
		return &LimitError{What: "levels of nesting", Max: r.limits.Depth}
	}
	r.depth++
	return r.step(1)
}

func (r *run) leave() { r.depth-- }
