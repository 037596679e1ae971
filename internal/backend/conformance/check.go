// Package conformance is the checks that every device must pass: its results have the bits of the portable code.
package conformance

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
)

// Finding is something that a device does otherwise than its contract or the portable code.
type Finding struct {
	Op   string // the method of backend.Backend that is wrong
	Case string // what it was asked for
	What string // what is wrong with the answer
	Err  error  // the error that What is the text of, or nil
}

func (f Finding) String() string { return fmt.Sprintf("%s: %s: %s", f.Op, f.Case, f.What) }

// Breakable is a device that a test can make fail. One whose errors come from outside has it,
// and is then tested to report them.
type Breakable interface {
	// Break has the next operation end in err, as if the device had reported it.
	Break(err error)
}

// check is the checks of one method, or of a few that are only seen together.
type check struct {
	name string
	run  func(c *checker)
	// basis is set for what everything after it relies on: if something is wrong with it, the
	// rest is not checked.
	basis bool
}

var checks = []check{
	{"Host", (*checker).host, true},
	{"Fill and Write", (*checker).stores, true},
	{"Alloc", (*checker).alloc, true},
	{"Free", (*checker).free, true},
	{"Copy", (*checker).copies, true},
	{"ReadBytes and WriteBytes", (*checker).bytes, true},
	{"Load", (*checker).load, true},
	{"Embed", (*checker).embed, false},
	{"Embed with a factor", (*checker).embedFactor, false},
	{"MatMul", (*checker).matmul, false},
	{"Gather", (*checker).gather, false},
	{"RMSNorm", (*checker).rmsnorm, false},
	{"LayerNorm", (*checker).layerNorm, false},
	{"NormAdd", (*checker).normAdd, false},
	{"GLU", (*checker).glu, false},
	{"Cap", (*checker).caps, false},
	{"GELU", (*checker).gelu, false},
	{"Rotate", (*checker).rotate, false},
	{"Mix", (*checker).mix, false},
	{"Top", (*checker).top, false},
	{"Draw and EmbedDrawn", (*checker).draw, false},
	{"Experts", (*checker).experts, false},
	{"Attend", (*checker).attend, false},
	{"Experts with options", (*checker).expertsOptions, false},
	{"Attend with options", (*checker).attendOptions, false},
	{"Attend behind windows", (*checker).released, false},
	{"Attend over 4 bits", (*checker).attendPacked, false},
	{"Attend without keys", (*checker).attendReads, false},
	{"Attend inside blocks", (*checker).attendBlock, false},
	{"Convolve", (*checker).convolve, false},
	{"DeltaNet", (*checker).deltaNet, false},
	{"Unload", (*checker).unload, false},
	{"errors", (*checker).errors, false},
	{"Pass", (*checker).pass, false},
}

// Suite is the checks, and what the oracle has answered: a device whose results are those of the portable code, which
// defines what every operation computes.
type Suite struct {
	oracle  backend.Backend
	answers map[string][][]float32 // by case; nil of cases that compare a device with itself
	brief   bool                   // fewer formats and shapes
	only    []string               // names of checks; nil: all

	quantized map[drawn]quantized // matrices of rigs
}

// New returns the checks; brief ones have fewer formats and shapes.
func New(oracle backend.Backend, brief bool) *Suite {
	return &Suite{oracle: oracle, answers: map[string][][]float32{}, brief: brief, quantized: map[drawn]quantized{}}
}

// Only leaves the checks of these names. It panics if there is no such check.
func (s *Suite) Only(names ...string) *Suite {
	for _, name := range names {
		if !slices.Contains(Names(false), name) {
			panic("conformance: there is no check " + name)
		}
	}
	few := *s
	few.only = names
	return &few
}

// Names are those of all checks, or of those that all others rely on.
func Names(basis bool) (names []string) {
	for _, k := range checks {
		if !basis || k.basis {
			names = append(names, k.name)
		}
	}
	return names
}

// Check has b do everything that a device can be asked for, over odd sizes, tails and views, and
// returns what is wrong: bits that differ from the oracle's; a row that depends on the other rows
// of the call; a result that depends on how a text was cut, or on drafts that were rejected;
// errors that are not reported.
func (s *Suite) Check(b backend.Backend) (all []Finding) {
	s.Each(b, func(_ string, check func() []Finding) { all = append(all, check()...) })
	return all
}

// Each calls f for each check, which f calls, until something that everything else relies on is wrong.
func (s *Suite) Each(b backend.Backend, f func(name string, check func() []Finding)) {
	c, goOn := &checker{Suite: s, b: b}, true
	for _, k := range checks {
		if !goOn || s.only != nil && !slices.Contains(s.only, k.name) {
			continue
		}
		f(k.name, func() []Finding {
			before := len(c.findings)
			k.run(c)
			found := c.findings[before:]
			goOn = !k.basis || len(found) == 0
			return found
		})
	}
}

// Version is the Digest of the brief checks: a device that has passed others has to pass these.
const Version = "6db9d89f92212740"

// Digest is equal for checks with the same cases and answers, once a device has passed them.
func (s *Suite) Digest() string {
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(s.answers)) {
		_, _ = fmt.Fprintln(sum, name) // a hash does not fail
		for _, list := range s.answers[name] {
			for _, x := range list {
				if x != x {
					x = float32(math.NaN()) // one is as good as another
				}
				_ = binary.Write(sum, binary.LittleEndian, x)
			}
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8])
}

// checker is a run of the checks.
type checker struct {
	*Suite
	b        backend.Backend
	op       string // the method that is checked
	cases    int    // of it so far, in like
	broken   bool   // op was found to be wrong: one finding says enough
	findings []Finding
}

// some are all elements of a list, or in a brief run every step-th.
func some[T any](c *checker, list []T, step int) []T {
	if !c.brief {
		return list
	}
	var few []T
	for i := 0; i < len(list); i += step {
		few = append(few, list[i])
	}
	return few
}

// on begins the checks of a method.
func (c *checker) on(op string) { c.op, c.broken, c.cases = op, false, 0 }

func (c *checker) find(what, format string, args ...any) {
	if !c.broken {
		f := Finding{Op: c.op, Case: what, What: fmt.Sprintf(format, args...)}
		if len(args) > 0 {
			f.Err, _ = args[len(args)-1].(error)
		}
		c.findings = append(c.findings, f)
	}
	c.broken = true
}

// try calls f, whose panic is its error: one of must, or one of the device.
func try(f func()) (err error) {
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case runtime.Error:
			err = fmt.Errorf("panic: %w", fault)
		case error:
			err = fault
		default:
			err = fmt.Errorf("panic: %v", fault)
		}
	}()
	f()
	return nil
}

// must is for memory calls that do not fail unless the device is broken.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// like compares what run computes on the device, with tensors that fill their memory and with
// views that do not, with what it computes on the oracle. run makes all its tensors by the rig. In a
// brief run the first case of a method has both kinds of tensors, and the others one or the other.
func (c *checker) like(what string, run func(r *rig) [][]float32) {
	if c.broken {
		return
	}
	want, err := c.answer(what, run)
	if err != nil {
		c.find(what, "the oracle: %v", err)
		return
	}
	kinds := []bool{false, true}
	if c.brief && c.cases > 0 {
		kinds = kinds[c.cases%2:][:1]
	}
	c.cases++
	for _, views := range kinds {
		kind := what
		if views {
			kind += ", views"
		}
		err := try(func() {
			got := c.onRig(c.b, views, run)
			for i := range want {
				if err := differ(got[i], want[i]); err != nil {
					panic(fmt.Errorf("result %d: %w", i, err))
				}
			}
		})
		if err != nil {
			c.find(kind, "%v", err)
		}
	}
}

// answer is the oracle's, which it is asked for once.
func (c *checker) answer(what string, run func(r *rig) [][]float32) ([][]float32, error) {
	key := c.op + ": " + what
	if known, ok := c.answers[key]; ok {
		return known, nil
	}
	err := try(func() { c.answers[key] = c.onRig(c.oracle, false, run) })
	return c.answers[key], err
}

// holds compares two ways to compute the same on the device.
func (c *checker) holds(what string, run func(r *rig) (got, want []float32)) {
	if c.broken {
		return
	}
	c.answers["itself: "+c.op+": "+what] = nil
	err := try(func() {
		c.onRig(c.b, false, func(r *rig) [][]float32 {
			got, want := run(r)
			must(differ(got, want))
			return nil
		})
	})
	if err != nil {
		c.find(what, "%v", err)
	}
}

// refuses checks that f, which returns an error or panics, does so: never silence.
func (c *checker) refuses(what string, f func() error) {
	var err error
	if fault := try(func() { err = f() }); fault == nil && err == nil {
		c.find(what, "was accepted")
	}
}

// differ is where two lists of numbers have different bits. A NaN is as good as another.
func differ(got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d numbers, want %d", len(got), len(want))
	}
	for i, w := range want {
		if g := got[i]; math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
			return fmt.Errorf("number %d of %d is %v, want %v", i, len(want), g, w)
		}
	}
	return nil
}

// ErrReported is an error of a device, in checks that errors are reported.
var ErrReported = errors.New("reported by the device")

// errors checks that what a device reports comes out of the next call that waits for it, and
// that wrong shapes do not pass.
func (c *checker) errors() {
	c.shapes()
	d, ok := c.b.(Breakable)
	if !ok {
		return
	}
	for name, wait := range map[string]func(x backend.Tensor) error{
		"Host":      func(x backend.Tensor) error { _, err := c.b.Host(x); return err },
		"Top":       func(x backend.Tensor) error { _, err := c.b.Top(x, make([]backend.Ask, x.Rows)); return err },
		"ReadBytes": func(x backend.Tensor) error { return c.b.ReadBytes(make([]byte, x.Rows*x.Cols*4), x) },
	} {
		c.on(name)
		err := try(func() {
			c.onRig(c.b, false, func(r *rig) [][]float32 {
				x, y := r.random(3, 5), r.random(3, 5)
				d.Break(ErrReported)
				c.b.GLU(x, x, y, backend.SiLU)
				if err := wait(x); !errors.Is(err, ErrReported) {
					c.find("after an operation that failed", "returns %v", err)
				}
				return nil
			})
		})
		if err != nil {
			c.find("after an operation that failed", "%v", err)
		}
	}
}
