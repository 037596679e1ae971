package cpu

import (
	"encoding/binary"
	mathbits "math/bits"
	"unsafe"

	"golang.org/x/sys/windows"
)

var (
	processorInformation = kernel32.NewProc("GetLogicalProcessorInformationEx")
	affinityMask         = kernel32.NewProc("GetProcessAffinityMask")
)

func systemCores() []core {
	const relationCore = 0
	var n uint32
	_, _, _ = processorInformation.Call(relationCore, 0, uintptr(unsafe.Pointer(&n))) // fails, and sets n
	if n == 0 {
		return nil
	}
	data := make([]byte, n)
	if ok, _, _ := processorInformation.Call(relationCore, uintptr(unsafe.Pointer(&data[0])), uintptr(unsafe.Pointer(&n))); ok == 0 {
		return nil
	}
	var mine, all uintptr
	_, _, _ = affinityMask.Call(uintptr(windows.CurrentProcess()), uintptr(unsafe.Pointer(&mine)), uintptr(unsafe.Pointer(&all)))
	return coresIn(data[:min(int(n), len(data))], uint64(mine))
}

// coresIn are the cores of a list of SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX, of processors of a mask if it is not 0, which is a
// process with processors of several groups.
func coresIn(data []byte, mask uint64) (cores []core) {
	// Offsets: size of the entry, efficiency class, number of groups, masks of groups.
	const size, class, groups, masks, group = 4, 9, 30, 32, 16
	best := byte(0)
	var classes []byte
	for len(data) >= masks+group {
		n := int(binary.LittleEndian.Uint32(data[size:]))
		if n < masks+group || n > len(data) {
			return nil // not the structure that we know
		}
		c, own := core{}, binary.LittleEndian.Uint64(data[masks:])
		if mask != 0 && binary.LittleEndian.Uint16(data[groups:]) == 1 {
			own &= mask
		}
		if c.threads = mathbits.OnesCount64(own); c.threads > 0 {
			cores, classes = append(cores, c), append(classes, data[class])
			best = max(best, data[class])
		}
		data = data[n:]
	}
	for i := range cores {
		if classes[i] == best {
			cores[i].speed = 1
		}
	}
	return cores
}
