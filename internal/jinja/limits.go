package jinja

import "fmt"

// Bounds of Parse. The longest chat templates in use are a tenth of this size
// and nest a dozen levels.
const (
	maxSource  = 512 << 10 // bytes
	maxNesting = 200       // blocks and brackets inside one another
	maxName    = 1000      // bytes of a name: a lookup counts as a step
)

// Limits bounds one rendering. A zero or negative field stands for its default.
type Limits struct {
	// Steps is how many units of work a rendering may take: one per expression
	// and statement evaluated, per element visited and per 64 bytes searched.
	// Default 10 million, about a second of work.
	Steps int
	// Bytes is the total memory of a rendering, counting every string,
	// list and piece of output and the records of their origins, also
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

// LimitError reports that a template exceeded a limit of Parse or Render.
type LimitError struct {
	What string // the limited resource, such as "steps"
	Max  int    // the limit
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("template needs more than the allowed %d %s", e.Max, e.What)
}

// step charges n units of work.
func (r *run) step(n int) error {
	if n > r.steps {
		r.steps = 0
		return &LimitError{What: "steps", Max: r.limits.Steps}
	}
	r.steps -= n
	return nil
}

// scan charges the work of scanning n bytes.
func (r *run) scan(n int) error { return r.step(1 + n/64) }

// alloc charges n bytes. It is called before the allocation, so
// that a refused request costs nothing.
func (r *run) alloc(n int) error {
	if n < 0 || n > r.bytes {
		r.bytes = 0
		return &LimitError{What: "bytes", Max: r.limits.Bytes}
	}
	r.bytes -= n
	return nil
}

// allocList charges the memory of n list slots, and the work of filling
// them.
func (r *run) allocList(n int) error {
	if n < 0 || n > r.bytes/valueSize {
		return r.alloc(r.bytes + 1)
	}
	if err := r.alloc(n * valueSize); err != nil {
		return err
	}
	return r.step(n)
}

// enter counts one step and one level of nesting; leave ends the level.
func (r *run) enter() error {
	if r.depth >= r.limits.Depth {
		return &LimitError{What: "levels of nesting", Max: r.limits.Depth}
	}
	r.depth++
	return r.step(1)
}

func (r *run) leave() { r.depth-- }
