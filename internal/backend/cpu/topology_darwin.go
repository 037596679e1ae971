package cpu

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// systemCores are the cores by their levels of performance, the first of which is the fastest. Efficiency cores are slow;
// a level of another name, or the only one, is not. Systems before the levels have cores of one kind.
func systemCores() (cores []core) {
	for level := range kernelNumber("hw.nperflevels") {
		at := fmt.Sprintf("hw.perflevel%d.", level)
		name, _ := unix.Sysctl(at + "name")
		cores = append(cores, alike(kernelNumber(at+"physicalcpu"), kernelNumber(at+"logicalcpu"), level == 0 || name != "" && name != "Efficiency")...)
	}
	if cores == nil {
		cores = alike(kernelNumber("hw.physicalcpu"), kernelNumber("hw.logicalcpu"), true)
	}
	return cores
}

// alike are n cores with that many hardware threads together.
func alike(n, threads uint64, fast bool) []core {
	cores := make([]core, min(n, 1<<16))
	for i := range cores {
		cores[i].threads = int(threads / n)
		if fast {
			cores[i].speed = 1
		}
	}
	return cores
}
