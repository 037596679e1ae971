// Package backendtest is for tests only: the checks that every device must pass, and a device
// whose memory only the device can read.
package backendtest

import (
	"cmp"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	_ "github.com/foretoken/foretoken/internal/backend/cpu" // what tests compute on
	"github.com/foretoken/foretoken/internal/backend/remote"
)

// Divide makes a device of several by a placement. Users of placements set it to split.New: tests of package split import this one.
var Divide func(place func(backend.Part) int, list ...backend.Backend) (backend.Backend, error)

// Open opens the device that tests compute on, which the test closes at its end: the processor, or
// what the environment names in FORETOKEN_TEST_DEVICE, as make test-cuda does. "remote:0.8ms" is a processor behind a connection
// of this machine that delays what is sent and what is received by that time, and that draws. "turns@cpu+remote+remote:5ms" gives the
// parts of a model to several devices one after another, and with "layers@" the first has all parts but the layers. Options with an instruction set are
// for the processor. FORETOKEN_TEST_ISA names that of processors without one in their options.
func Open(tb testing.TB, o backend.Options) backend.Backend {
	tb.Helper()
	if o.ISA != "" {
		return CPU(tb, o)
	}
	place, names, several := strings.Cut(cmp.Or(os.Getenv("FORETOKEN_TEST_DEVICE"), "cpu"), "@")
	if !several {
		return open(tb, place, o)
	}
	var list []backend.Backend
	for name := range strings.SplitSeq(names, "+") {
		list = append(list, open(tb, name, o))
	}
	b, err := Divide(func(p backend.Part) int {
		if layer := p.Kind == backend.LayerPart || p.Kind == backend.ExpertsPart; place == "layers" {
			return map[bool]int{true: 1 + p.Layer%(len(list)-1)}[layer]
		}
		return (p.Layer + int(p.Kind)) % len(list)
	}, list...)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// CPU opens the processor for a test, which closes it at its end.
func CPU(tb testing.TB, o backend.Options) backend.Backend {
	tb.Helper()
	return open(tb, "cpu", o)
}

func open(tb testing.TB, device string, o backend.Options) backend.Backend {
	tb.Helper()
	if device, delay, _ := strings.Cut(device, ":"); device == "remote" {
		d, err := time.ParseDuration(cmp.Or(delay, "0s"))
		if err != nil {
			tb.Fatal(err)
		}
		n := StartNode(tb, o)
		n.Open = func() (backend.Backend, error) {
			b, err := backend.Open("cpu", o)
			return NewOpaque(b), err // which draws there
		}
		return Remote(tb, backend.Options{}, remote.Options{Name: n.Addr, Dial: n.Dial(d)})
	}
	if device == "cpu" {
		o.ISA = cmp.Or(o.ISA, os.Getenv("FORETOKEN_TEST_ISA"))
	}
	b, err := backend.Open(device, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}

// Drawing is a device that draws tokens: b, or one that computes on it.
func Drawing(b backend.Backend) backend.Backend {
	if _, ok := b.(backend.Drawer); ok {
		return b
	}
	return NewOpaque(b)
}
