package library

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/models/tiny"
	"github.com/foretoken/foretoken/internal/rescue"
)

var silent = slog.New(slog.DiscardHandler)

// checkpointFolder writes the embedded model's files.
func checkpointFolder(t *testing.T) string {
	t.Helper()
	return filetest.Folder(t, tiny.Files())
}

// TestLibraryFreesMemoryBeforeItLoads has memory for one model and a half, and checks at every
// load that the unloaded models are closed and their memory is free, while one
// in use stays.
func TestLibraryFreesMemoryBeforeItLoads(t *testing.T) {
	dir := checkpointFolder(t)
	opened := map[string]*foretoken.Model{}
	var events []string
	closed := func(m *foretoken.Model) bool {
		_, err := m.Generate(t.Context(), foretoken.Request{Prompt: &foretoken.Prompt{IDs: []int32{1}}, MaxTokens: 1})
		return errors.Is(err, foretoken.ErrClosed)
	}
	path := map[string]string{"a": foretoken.Tiny, "b": dir, "c": foretoken.Tiny}
	o := foretoken.Options{Threads: 1, Log: silent}
	one := foretoken.Size(foretoken.Tiny, o)
	l := New(Options{
		Names: func() []string { return []string{"a", "b", "c"} }, Memory: one * 3 / 2,
		Size: func(name string) int64 { return foretoken.Size(path[name], o) },
		Load: func(_ context.Context, name string) (*foretoken.Model, error) { // of which only one runs at a time here
			line := "load " + name + " beside"
			for _, other := range []string{"a", "b", "c"} {
				if m := opened[other]; m != nil && !closed(m) {
					line += " " + other
				}
			}
			events = append(events, line)
			m, err := foretoken.Open(t.Context(), path[name], o)
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

// TestLibraryKeepsWhatIsBeingLoaded cancels the only request for a model, and lets its idle time
// pass, while it is being loaded: it is unloaded after that.
func TestLibraryKeepsWhatIsBeingLoaded(t *testing.T) {
	loading := make(chan struct{})
	l := New(Options{
		Names: func() []string { return []string{"a"} }, KeepAlive: time.Nanosecond,
		Load: func(context.Context, string) (*foretoken.Model, error) {
			<-loading
			return foretoken.Open(t.Context(), foretoken.Tiny, foretoken.Options{Threads: 1, Log: silent})
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

// TestLibrarySurvivesPanics makes loading and the size estimate panic: all waiting requests get an
// error with the stack, and the next request tries again.
func TestLibrarySurvivesPanics(t *testing.T) {
	for _, where := range []string{"load", "size"} {
		broken, waiting := true, make(chan struct{})
		l := New(Options{
			Names: func() []string { return []string{"a"} }, Memory: 1 << 40,
			Size: func(string) int64 {
				<-waiting
				if broken && where == "size" {
					panic("of the test")
				}
				return 1
			},
			Load: func(context.Context, string) (*foretoken.Model, error) {
				if broken {
					panic("of the test")
				}
				return foretoken.Open(t.Context(), foretoken.Tiny, foretoken.Options{Threads: 1, Log: silent})
			},
		})
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				_, _, err := l.Use(t.Context(), "a")
				if err == nil || err.Error() != "panic: of the test" || !strings.Contains(rescue.Stack(err), "library_test.go:") {
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

// TestLibraryLoadsAndUnloads has three models and memory for one and a half.
func TestLibraryLoadsAndUnloads(t *testing.T) {
	var mu sync.Mutex // protects what follows
	loads := map[string]int{}
	open := func(_ context.Context, name string) (*foretoken.Model, error) {
		mu.Lock()
		loads[name]++
		mu.Unlock()
		if name == "broken" {
			return nil, errors.New("broken")
		}
		return foretoken.Open(t.Context(), foretoken.Tiny, foretoken.Options{Threads: 1, Log: silent})
	}
	probe := foretoken.Size(foretoken.Tiny, foretoken.Options{Threads: 1})
	l := New(Options{
		Load: open, Names: func() []string { return []string{"a", "b", "pinned", "broken"} },
		Memory: probe * 5 / 2, Pinned: []string{"pinned"},
	})
	use := func(name string) func() {
		t.Helper()
		_, done, err := l.Use(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { use("a")() })
	}
	all.Wait()
	if loads["a"] != 1 {
		t.Errorf("a was loaded %d times", loads["a"])
	}
	use("pinned")()
	held := use("b") // the least recently used of the rest is unloaded
	if got := len(l.Status()); got != 2 || loads["b"] != 1 {
		t.Errorf("%d models are loaded, want 2", got)
	}
	use("a")()
	if loads["a"] != 2 {
		t.Errorf("a was loaded %d times, want 2: it had to make space", loads["a"])
	}
	held()
	if _, _, err := l.Use(t.Context(), "c"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), `"pinned"`) {
		t.Errorf("an unknown model: %v", err)
	}
	for range 2 {
		if _, _, err := l.Use(t.Context(), "broken"); err == nil {
			t.Error("a broken model was loaded")
		}
	}
	if loads["broken"] != 2 {
		t.Errorf("a broken model was tried %d times, want 2", loads["broken"])
	}
	if err := l.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Use(t.Context(), "a"); err == nil {
		t.Error("a closed library has loaded a model")
	}
}

// TestLibraryLetsModelsExpire has an hour pass without use, and minutes less. The model is not
// of the bubble whose clock that is: it computes on threads that belong to the process.
func TestLibraryLetsModelsExpire(t *testing.T) {
	m, err := foretoken.Open(t.Context(), foretoken.Tiny, foretoken.Options{Threads: 1, Log: silent})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{
			Load:  func(context.Context, string) (*foretoken.Model, error) { return m, nil },
			Names: func() []string { return []string{"a"} }, KeepAlive: time.Hour,
		})
		for range 2 { // every use restarts the hour
			_, done, err := l.Use(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Hour)
			done()
			time.Sleep(time.Hour - time.Minute)
			if synctest.Wait(); len(l.Status()) != 1 {
				t.Error("the model is gone before its time")
			}
		}
		time.Sleep(time.Minute)
		if synctest.Wait(); len(l.Status()) != 0 {
			t.Error("the model is still there")
		}
		if _, err := m.Generate(t.Context(), foretoken.Request{Prompt: m.TextPrompt("Once"), MaxTokens: 1}); !errors.Is(err, foretoken.ErrClosed) {
			t.Errorf("the model that has expired is not closed: %v", err)
		}
		if err := l.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
