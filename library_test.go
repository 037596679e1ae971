package foretoken

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/models/tiny"
)

// checkpointFolder writes the embedded model's files.
func checkpointFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range tiny.Files() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestSizeIsKnownBefore checks that the size of a model is known from its headers as closely as
// a library needs it.
func TestSizeIsKnownBefore(t *testing.T) {
	for _, quantize := range []int{0, 4} {
		o := Options{Threads: 1, Quantize: quantize, Log: silent}
		want := openTiny(t, o).Info().Bytes
		if got := Size(Tiny, o); got < want*4/5 || got > want*5/4 {
			t.Errorf("%d bits: %d bytes, and it took %d", quantize, got, want)
		}
	}
	if got := Size(filepath.Join(t.TempDir(), "none"), Options{}); got != 0 {
		t.Errorf("no model has %d bytes", got)
	}
}

// TestLibraryFreesMemoryBeforeItLoads has memory for one model and a half, and checks whenever one
// is about to be loaded that what had to go is closed by then, its memory given back, while one
// in use stays.
func TestLibraryFreesMemoryBeforeItLoads(t *testing.T) {
	dir := checkpointFolder(t)
	opened := map[string]*Model{}
	var events []string
	closed := func(m *Model) bool {
		_, err := m.Generate(t.Context(), Request{Prompt: &Prompt{IDs: []int32{1}}, MaxTokens: 1})
		return errors.Is(err, engine.ErrClosed)
	}
	path := map[string]string{"a": Tiny, "b": dir, "c": Tiny}
	o := Options{Threads: 1, Log: silent}
	one := Size(Tiny, o)
	l := NewLibrary(LibraryOptions{
		Names: func() []string { return []string{"a", "b", "c"} }, Memory: one * 3 / 2,
		Size: func(name string) int64 { return Size(path[name], o) },
		Load: func(name string) (*Model, error) { // of which only one runs at a time here
			line := "load " + name + " beside"
			for _, other := range []string{"a", "b", "c"} {
				if m := opened[other]; m != nil && !closed(m) {
					line += " " + other
				}
			}
			events = append(events, line)
			m, err := Open(t.Context(), path[name], o)
			opened[name] = m
			return m, err
		},
	})
	use := func(name string) func() {
		t.Helper()
		_, done, err := l.Use(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	use("a")()
	held := use("b")
	use("c")() // b is in use and stays
	held()
	use("a")()
	want := []string{"load a beside", "load b beside", "load c beside b", "load a beside"}
	if !slices.Equal(events, want) {
		t.Errorf("%q, want %q", events, want)
	}
	if err := l.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLibraryKeepsWhatIsBeingLoaded has the only one who asked for a model give up, and its time be
// over, while it is being loaded: it goes when it is there.
func TestLibraryKeepsWhatIsBeingLoaded(t *testing.T) {
	loading := make(chan struct{})
	l := NewLibrary(LibraryOptions{
		Names: func() []string { return []string{"a"} }, KeepAlive: time.Nanosecond,
		Load: func(string) (*Model, error) {
			<-loading
			return Open(t.Context(), Tiny, Options{Threads: 1, Log: silent})
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := l.Use(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	l.mu.Lock()
	e := l.loaded["a"]
	l.mu.Unlock()
	l.expire(e) // as its timer does
	if len(l.Status()) != 1 {
		t.Error("it is forgotten while it is being loaded")
	}
	close(loading)
	for len(l.Status()) > 0 {
		runtime.Gosched()
	}
	if err := l.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLibrarySurvivesPanics has loading and the question for a size panic: all who wait get an
// error with the stack, and the next request tries again.
func TestLibrarySurvivesPanics(t *testing.T) {
	for _, where := range []string{"load", "size"} {
		broken, waiting := true, make(chan struct{})
		l := NewLibrary(LibraryOptions{
			Names: func() []string { return []string{"a"} }, Memory: 1 << 40,
			Size: func(string) int64 {
				<-waiting
				if broken && where == "size" {
					panic("of the test")
				}
				return 1
			},
			Load: func(string) (*Model, error) {
				if broken {
					panic("of the test")
				}
				return Open(t.Context(), Tiny, Options{Threads: 1, Log: silent})
			},
		})
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				_, _, err := l.Use(t.Context(), "a")
				if err == nil || !strings.HasPrefix(err.Error(), "panic: of the test\n") || !strings.Contains(err.Error(), "library_test.go:") {
					t.Errorf("%s: %v, want the panic and its stack", where, err)
				}
			})
		}
		for len(l.Status()) == 0 || l.Status()[0].Users < 4 { // all wait for the same
			runtime.Gosched()
		}
		close(waiting)
		all.Wait()
		broken = false
		_, done, err := l.Use(t.Context(), "a")
		if err != nil {
			t.Fatalf("%s: the next request: %v", where, err)
		}
		done()
		if err := l.Drain(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
