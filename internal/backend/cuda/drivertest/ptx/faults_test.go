package ptx

import (
	"errors"
	"strings"
	"testing"
)

// A kernel may read output of earlier launches before it waits, if the previous launch waited before it let others begin.
func TestWhatWasWaitedForMayBeRead(t *testing.T) {
	const head = ".version 7.8\n.target sm_90\n.address_size 64\n"
	const body = "(.param .u64 to) { .reg .b32 %r<4>; .reg .b64 %rd<4>; ld.param.u64 %rd1, [to]; mov.u32 %r1, 7; "
	const wait, begin, write, read = "griddepcontrol.wait; ", "griddepcontrol.launch_dependents; ", "st.global.u32 [%rd1], %r1; ", "ld.global.u32 %r2, [%rd1]; "
	for _, c := range []struct {
		name, last, next string // kernels after one that writes
		want             bool   // a fault
	}{
		{"waits and begins", wait + begin, read + wait, false},
		{"waits and ends", wait, read + wait, false},
		{"begins and waits", begin + wait, read + wait, true},
		{"writes itself", wait + begin + write, read + wait, true},
		{"begins and waits before it is read", begin + wait, wait + read, false},
	} {
		r := newRig(t, Options{}, head+".visible .entry first"+body+wait+write+"ret; }\n.visible .entry last"+body+c.last+"ret; }\n.visible .entry next"+body+c.next+"ret; }\n")
		to := r.zeros(4)
		for i, name := range []string{"first", "last", "next"} {
			err := r.try(name, 1, 32, true, to)
			if (err != nil) != (c.want && i == 2) {
				t.Errorf("%s: kernel %s: %v", c.name, name, err)
			}
		}
	}
}

// A kernel that does not wait is a fault: a kernel that waits for it would not wait for those before it.
func TestKernelWithoutGridWaitIsFound(t *testing.T) {
	m, err := Parse(".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry idle() { ret; }\n")
	if err != nil {
		t.Fatal(err)
	}
	l := Launch{Kernel: m.Kernel("idle"), Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}}
	if err := NewMachine(Options{}).Launch(l); err != nil {
		t.Error(err)
	}
	l.Dependent = true
	var fault *Fault
	if err := NewMachine(Options{}).Launch(l); !errors.As(err, &fault) || !strings.Contains(fault.What, "no thread does griddepcontrol.wait") {
		t.Errorf("error %v", err)
	}
}
