//go:build !noasm

package kernel

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// allowAMX requests the use of tiles from the system, once for the process, and returns why it was
// denied.
var allowAMX = sync.OnceValue(func() string {
	const (
		requestPermission = 0x1023 // ARCH_REQ_XCOMP_PERM
		tileData          = 18     // XFEATURE_XTILEDATA
	)
	if _, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, requestPermission, tileData, 0); errno != 0 {
		return fmt.Sprintf("the system does not allow AMX: %v", errno)
	}
	return ""
})
