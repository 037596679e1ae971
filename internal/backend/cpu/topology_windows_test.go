package cpu

import (
	"encoding/binary"
	"testing"
)

// TestCoresOfLists reads lists as the system returns them for several kinds of machines.
func TestCoresOfLists(t *testing.T) {
	entry := func(class byte, group uint16, masks ...uint64) []byte {
		b := make([]byte, 32+16*len(masks))
		binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
		b[9] = class
		binary.LittleEndian.PutUint16(b[30:], uint16(len(masks)))
		for i, m := range masks {
			binary.LittleEndian.PutUint64(b[32+16*i:], m)
			binary.LittleEndian.PutUint16(b[32+16*i+8:], group)
		}
		return b
	}
	join := func(list ...[]byte) (all []byte) {
		for _, b := range list {
			all = append(all, b...)
		}
		return all
	}
	hybrid := join(entry(1, 0, 0b11), entry(1, 0, 0b1100), entry(0, 0, 1<<4), entry(0, 0, 1<<5), entry(0, 0, 1<<6))
	for _, c := range []struct {
		name          string
		data          []byte
		mask          uint64
		cores, choice int
	}{
		{"none", nil, 0, 0, 64},
		{"cores of two threads", join(entry(0, 0, 0b11), entry(0, 0, 0b1100)), 0b1111, 2, 2},
		{"a hybrid", hybrid, 0b1111111, 5, 2},
		{"an affinity mask", hybrid, 0b1110010, 4, 1},
		{"two groups", join(entry(0, 0, 1), entry(0, 1, 1)), 0, 2, 2},
		{"cut off", hybrid[:60], 0, 1, 1},
		{"another structure", make([]byte, 64), 0, 0, 64},
	} {
		cores := coresIn(c.data, c.mask)
		if n, why := chooseThreads(cores, 64); len(cores) != c.cores || n != c.choice {
			t.Errorf("%s: %d cores %v, %d threads (%s), want %d and %d", c.name, len(cores), cores, n, why, c.cores, c.choice)
		}
	}
}
