package load

import (
	"runtime"
	"testing"
)

// Opening models one after another must not add up.
func TestProcessorsAreOneMoreThanThreads(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for range 2 {
		for _, threads := range []string{"1", "3", ""} {
			f := NewFlags()
			want := max(Processors, Threads()+1)
			if threads != "" {
				if err := f.Threads.Set(threads); err != nil {
					t.Fatal(err)
				}
				want = max(Processors, f.Threads.Value+1)
			}
			b, err := f.OpenDevice()
			if err != nil {
				t.Fatal(err)
			}
			if got := runtime.GOMAXPROCS(0); got != want {
				t.Errorf("--threads %q: %d processors, want %d", threads, got, want)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
