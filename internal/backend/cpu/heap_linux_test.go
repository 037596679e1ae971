package cpu

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
)

// resident is the bytes of memory that the process has.
func resident(t *testing.T) int64 {
	t.Helper()
	data := filetest.Read(t, "/proc/self/statm")
	pages, err := strconv.ParseInt(strings.Fields(string(data))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// TestMemoryGoesBackToTheSystem checks that what is freed, and what a closed backend had, is
// the system's again at once, without the garbage collector.
func TestMemoryGoesBackToTheSystem(t *testing.T) {
	const size, slack = 256 << 20, 64 << 20
	for name, end := range map[string]func(*Backend, []backend.Tensor){
		"freed": func(b *Backend, list []backend.Tensor) {
			for i := range list { // holes first
				b.Free(list[i*7%len(list)])
			}
		},
		"closed": func(b *Backend, _ []backend.Tensor) { _ = b.Close() },
	} {
		b := openTest(t, Options{Threads: 1})
		debug.FreeOSMemory() // what the heap would give back in the meantime does not count
		before := resident(t)
		var list []backend.Tensor
		for range size >> 20 {
			x, err := b.Alloc(dtype.F32, 512, 512)
			if err != nil {
				t.Fatal(err)
			}
			b.Fill(x, 1)
			list = append(list, x)
		}
		if grown := resident(t) - before; grown < size-slack {
			t.Fatalf("%d bytes of numbers made the process grow by %d only", size, grown)
		}
		end(b, list)
		if left := resident(t) - before; left > slack {
			t.Errorf("%s: %d of %d bytes are still the process's", name, left, size)
		}
	}
}
