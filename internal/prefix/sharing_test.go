package prefix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/state"
)

// flaky is a folder whose calls can be made to fail.
type flaky struct {
	store.Folder
	fault   atomic.Pointer[func(op, name string, data []byte) ([]byte, error)]
	calls   atomic.Int64
	mixture int          // of the processes that share it
	target  state.Layout // instead of that of the mixture; without layers: none
}

func newFlaky(t *testing.T) *flaky {
	t.Helper()
	f, err := store.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &flaky{Folder: f}
}

// set passes every call through a function; nil: none.
func (f *flaky) set(fault func(op, name string, data []byte) ([]byte, error)) {
	if fault == nil {
		f.fault.Store(nil)
		return
	}
	f.fault.Store(&fault)
}

func (f *flaky) do(op, name string, data []byte) ([]byte, error) {
	f.calls.Add(1)
	if fault := f.fault.Load(); fault != nil {
		return (*fault)(op, name, data)
	}
	return data, nil
}

func (f *flaky) Get(ctx context.Context, name string, limit int64) ([]byte, error) {
	data, err := f.Folder.Get(ctx, name, limit)
	if err != nil {
		return nil, err
	}
	return f.do("get", name, data)
}

func (f *flaky) Put(ctx context.Context, name string, data []byte, replace bool) error {
	if _, err := f.do("put", name, data); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(string(f.Folder), name)); err == nil && !replace {
		return nil // the first writer wins
	}
	return f.Folder.Put(ctx, name, data, replace)
}

func (f *flaky) List(ctx context.Context, prefix string, limit int) ([]store.Item, error) {
	if _, err := f.do("list", prefix, nil); err != nil {
		return nil, err
	}
	return f.Folder.List(ctx, prefix, limit)
}

// process is a cache that shares a store with others.
type process struct {
	*toy
	s     *store.Shared
	c     *Cache
	l     *listener
	log   *safeLog
	token float64 // seconds
}

// resume restores the first n tokens of a text, which the cache has.
func (p *process) resume(tokens []int32, n int) {
	p.t.Helper()
	h := p.c.Find(Salt{}, Text{Tokens: tokens}, true)
	if h == nil || h.Len() != n {
		p.t.Fatalf("%d tokens are not found", n)
	}
	defer h.Release()
	x := p.open()
	defer x.close()
	x.restore(h, tokens)
}

// safeLog is a log that several goroutines write.
type safeLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *safeLog) lines(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func newProcess(t *testing.T, files store.Store, o store.SharedOptions, disk *store.Disk) *process {
	t.Helper()
	p := &process{toy: newToy(t, 1<<22), l: newListener(t), log: &safeLog{}}
	o.Log = slog.New(slog.NewTextHandler(p.log, nil))
	if f, ok := files.(*flaky); ok {
		p.target, p.memory = mixtures[f.mixture][0], mixtures[f.mixture][1]
		if f.target.Layers != nil {
			p.target = f.target
		}
	}
	if o.Uses == 0 {
		o.Uses = 1
	}
	p.s = store.NewShared(files, o)
	p.c = New(p.pool, Options{Target: p.target, Drafts: []state.Layout{p.memory}, Tiers: store.Tiers{Disk: disk, Shared: p.s}, TokenTime: func() float64 { return p.token }, Observer: p.l})
	t.Cleanup(p.end)
	return p
}

// end writes queued files and closes the process.
func (p *process) end() {
	if p.c != nil {
		p.c.Close()
		p.s.Close()
		p.c = nil
	}
}

// write stores a text at some lengths by a new process.
func write(t *testing.T, files store.Store, tokens []int32, lengths ...int) {
	t.Helper()
	p := newProcess(t, files, store.SharedOptions{}, nil)
	p.remember(p.c, tokens, lengths...)
	p.end()
}

// TestSharedServesOtherProcesses has processes store random boundaries of texts with common prefixes. Other processes search
// texts that differ from some token on: they find the longest boundary, with its contents, by few lookups.
func TestSharedServesOtherProcesses(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	observed := 0 // boundaries that were reported to an observer
	for round := range 6 {
		files := newFlaky(t)
		files.mixture = round % 2 * (len(mixtures) - 1) // with windows
		base := story(uint64(round), 3000)
		type stored struct {
			tokens []int32
			length int
		}
		var all []stored
		for i := range 3 {
			part := rng.IntN(2000)
			tokens := append(slices.Clone(base[:part]), story(uint64(100+10*round+i), 3000-part)...)
			var lengths []int
			for at := 1024; at < len(tokens)-1; at += 1024 {
				lengths = append(lengths, at)
			}
			for range 3 {
				lengths = append(lengths, 1+rng.IntN(2900))
			}
			slices.Sort(lengths)
			lengths = slices.Compact(lengths)
			lengths = lengths[:1+rng.IntN(len(lengths))]
			write(t, files, tokens, lengths...)
			for _, l := range lengths {
				all = append(all, stored{tokens, l})
			}
		}
		for i := range 5 {
			from := all[rng.IntN(len(all))].tokens
			part := rng.IntN(3000)
			tokens := append(slices.Clone(from[:part]), story(uint64(1000+i), 40+rng.IntN(900))...)
			want := 0
			for _, x := range all {
				if x.length < len(tokens) && x.length > want && slices.Equal(x.tokens[:x.length], tokens[:x.length]) {
					want = x.length
				}
			}
			p := newProcess(t, files, store.SharedOptions{}, nil)
			got := fetched(p.c, tokens)
			if len(tokens) <= 64 { // not worth asking
				want = 0
			}
			if got != want {
				t.Fatalf("round %d: found %d of %d tokens, want %d", round, got, len(tokens), want)
			}
			if n := p.s.Stats().Lookups; n > 45 {
				t.Errorf("%d lookups for %d tokens", n, len(tokens))
			}
			if want > 0 {
				h := p.c.Find(Salt{}, Text{Tokens: tokens}, true)
				x := p.open()
				x.restore(h, tokens)
				h.Release()
				x.close()
				if heard := p.c.heard(p.l, tokens[:want]); heard != (want%backend.PageTokens == 0) {
					t.Errorf("%d tokens were fetched, and the observer knows of it: %t", want, heard)
				}
				observed += len(p.l.has)
			}
			p.end()
		}
	}
	if observed == 0 {
		t.Error("no boundary was at the end of a page")
	}
}

// TestSharedFindsBoundariesFarApart has a text of which 28 pages are stored and an entry ends at the eighth. It is found if windows are so
// large that boundaries are that far apart.
func TestSharedFindsBoundariesFarApart(t *testing.T) {
	for heads, want := range map[int]int{0: 0, 8: 450} {
		files := newFlaky(t)
		files.target.Layers = []state.Layer{state.KV{Type: dtype.F16, Heads: 1, Key: 16, Value: 16}}
		if heads > 0 {
			files.target.Layers = append(files.target.Layers, state.KV{Type: dtype.F16, Heads: heads, Key: 16, Value: 16, Window: 1024})
		}
		tokens := story(1, 2000)
		write(t, files, tokens, 450, 1900)
		p := newProcess(t, files, store.SharedOptions{}, nil)
		if got := fetched(p.c, append(slices.Clone(tokens[:1800]), story(2, 50)...)); got != want {
			t.Errorf("windows of %d heads, boundaries %d tokens apart: found %d tokens, want %d", heads, p.target.Boundary(), got, want)
		}
		p.end()
	}
}

// TestSharedAsksOnceForNothing searches a text that the store lacks: one exchange, and none in the next half minute.
func TestSharedAsksOnceForNothing(t *testing.T) { synctest.Test(t, testSharedAsksOnce) }

func testSharedAsksOnce(t *testing.T) {
	files := newFlaky(t)
	p := newProcess(t, files, store.SharedOptions{}, nil)
	tokens := story(1, 3000)
	for range 5 {
		if n := fetched(p.c, tokens); n != 0 {
			t.Fatalf("found %d tokens", n)
		}
	}
	if n := files.calls.Load(); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
	write(t, files, tokens, 2500)
	time.Sleep(31 * time.Second)
	if n := fetched(p.c, tokens); n != 2500 {
		t.Errorf("found %d tokens of what another process has written since", n)
	}
	before := files.calls.Load()
	if n := fetched(p.c, tokens[:2501+50]); n != 2500 || files.calls.Load() != before {
		t.Errorf("%d tokens, %d requests for less than a page", n, files.calls.Load()-before)
	}
}

// TestSharedIsWrittenAfterUses counts the uses of a boundary until it is written.
func TestSharedIsWrittenAfterUses(t *testing.T) {
	for _, uses := range []int{1, 2, 3, 5} {
		files := newFlaky(t)
		tokens := story(1, 301)
		for used := 1; used <= uses; used++ {
			p := newProcess(t, files, store.SharedOptions{Uses: uses}, nil)
			p.remember(p.c, tokens, 300)
			for i := 1; i < used; i++ {
				p.resume(tokens, 300)
			}
			p.end()
			if got := len(folder(t, string(files.Folder))); got > 0 != (used == uses) {
				t.Errorf("%d files after %d of %d uses", got, used, uses)
			}
		}
		q := newProcess(t, files, store.SharedOptions{Uses: 1}, nil)
		if n := fetched(q.c, tokens); n != 300 {
			t.Errorf("found %d tokens", n)
		}
		q.end()
		if x := q.s.Stats(); x.Written != 0 {
			t.Errorf("what came from the store was written to it: %+v", x)
		}
	}
}

// TestSharedDegrades has the store fail and work again. Meanwhile lookups miss without a request. One log line reports each
// change.
func TestSharedDegrades(t *testing.T) { synctest.Test(t, testSharedDegrades) }

func testSharedDegrades(t *testing.T) {
	files := newFlaky(t)
	var texts [][]int32
	for i := range 30 {
		texts = append(texts, story(uint64(i), 201))
		write(t, files, texts[i], 200)
	}
	p := newProcess(t, files, store.SharedOptions{}, nil)
	if fetched(p.c, texts[0]) != 200 {
		t.Fatal("not found")
	}
	for _, op := range []string{"list", "get"} {
		before := p.log.lines("the shared store fails")
		time.Sleep(2 * time.Minute)
		files.set(func(at, _ string, data []byte) ([]byte, error) {
			if at == op {
				return nil, errors.New("connection refused")
			}
			return data, nil
		})
		if n := fetched(p.c, texts[len(op)]); n != 0 || !p.s.Stats().Down {
			t.Fatalf("%s fails: found %d tokens, %+v", op, n, p.s.Stats())
		}
		calls := files.calls.Load()
		for _, text := range texts[10:20] {
			if n := fetched(p.c, text); n != 0 {
				t.Errorf("found %d tokens in a store that fails", n)
			}
		}
		if n := files.calls.Load() - calls; n != 0 {
			t.Errorf("%d requests to a store that fails", n)
		}
		files.set(nil)
		time.Sleep(time.Minute)
		fetched(p.c, story(999, 201)) // probes the store
		synctest.Wait()
		if n := fetched(p.c, texts[20+len(op)]); n != 200 {
			t.Errorf("after %s works again: found %d tokens", op, n)
		}
		if n := p.log.lines("the shared store fails") - before; n != 1 {
			t.Errorf("%d warnings", n)
		}
	}
	// A store that refuses writes is still read.
	files.set(func(at, _ string, data []byte) ([]byte, error) {
		if at == "put" {
			return nil, os.ErrPermission
		}
		return data, nil
	})
	for i := range uint64(5) {
		p.remember(p.c, story(500+i, 201), 200)
	}
	synctest.Wait()
	if n := p.s.Stats().Dropped; n != 5*4 {
		t.Errorf("%d files were dropped, want %d", n, 5*4)
	}
	if n := fetched(p.c, texts[29]); n != 200 || p.log.lines("writes to the shared store fail") != 1 {
		t.Errorf("found %d tokens, %d warnings", n, p.log.lines("writes to the shared store fail"))
	}
}

// TestSharedIgnoresWhatItCannotUse damages every kind of file in every way. Each is a miss, logged in one line, and replaced
// when the text is stored again.
func TestSharedIgnoresWhatItCannotUse(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"a bit":        func(b []byte) []byte { b[len(b)/2] ^= 4; return b },
		"a cut":        func(b []byte) []byte { return b[:len(b)-40] },
		"a new format": func(b []byte) []byte { b[8]++; return reseal(b) },
		"a large file": func(b []byte) []byte { return append(b, make([]byte, 30<<20)...) },
		"contents": func(b []byte) []byte {
			b[headerBytes]++
			b[len(b)-33] = 0
			return reseal(append(b[:len(b)-32:len(b)-32], make([]byte, 33)...))
		},
	} {
		for _, suffix := range []string{".page", ".end"} {
			t.Run(name+" "+suffix, func(t *testing.T) {
				files := newFlaky(t)
				tokens := story(1, 201)
				write(t, files, tokens, 200)
				for _, f := range folder(t, string(files.Folder)) {
					if strings.HasSuffix(f, suffix) {
						data, err := os.ReadFile(f)
						if err == nil {
							err = os.WriteFile(f, damage(data), 0o600)
						}
						if err != nil {
							t.Fatal(err)
						}
						break
					}
				}
				p := newProcess(t, files, store.SharedOptions{}, nil)
				for range 3 {
					if n := fetched(p.c, tokens); n != 0 {
						t.Fatalf("found %d tokens", n)
					}
				}
				if x := p.s.Stats(); x.Ignored == 0 || x.Down || p.log.lines("ignored") != 1 {
					t.Errorf("%+v, %d lines", x, p.log.lines("ignored"))
				}
				p.remember(p.c, tokens, 200)
				p.end()
				p = newProcess(t, files, store.SharedOptions{}, nil)
				if n := fetched(p.c, tokens); n != 200 {
					t.Errorf("found %d tokens after the file was replaced", n)
				}
			})
		}
	}
}

// slow is a store of a known speed.
type slow struct {
	*flaky
	latency time.Duration
	rate    int64 // bytes per second
}

func (s slow) List(ctx context.Context, prefix string, limit int) ([]store.Item, error) {
	time.Sleep(s.latency)
	return s.flaky.List(ctx, prefix, limit)
}

func (s slow) Get(ctx context.Context, name string, limit int64) ([]byte, error) {
	data, err := s.flaky.Get(ctx, name, limit)
	time.Sleep(s.latency + time.Duration(int64(len(data))*int64(time.Second)/s.rate))
	return data, err
}

// TestSharedRefusesWhatIsComputedFaster has a process measure a store and then look for a text.
func TestSharedRefusesWhatIsComputedFaster(t *testing.T) {
	for _, c := range []struct {
		token    float64 // seconds
		latency  time.Duration
		rate     int64
		measured bool
		want     int
		refused  int64
	}{
		{0, time.Second, 1 << 10, true, 300, 0},    // the speed of the model is unknown
		{0.1, time.Second, 1 << 10, false, 300, 0}, // the speed of the store is unknown
		{1, time.Millisecond, 1 << 30, true, 300, 0},
		{1e-4, time.Millisecond, 1 << 10, true, 0, 1},
		{1e-4, time.Second, 1 << 30, true, 0, 0}, // not even asked
	} {
		synctest.Test(t, func(t *testing.T) {
			files := newFlaky(t)
			tokens, other := story(1, 301), story(2, 301)
			write(t, files, tokens, 300)
			write(t, files, other, 300)
			p := newProcess(t, slow{files, c.latency, c.rate}, store.SharedOptions{}, nil)
			if c.measured && fetched(p.c, other) != 300 {
				t.Fatal("not found")
			}
			p.token = c.token
			got := fetched(p.c, tokens)
			if x := p.s.Stats(); got != c.want || x.Refused != c.refused {
				t.Errorf("%+v: found %d tokens, %+v", c, got, x)
			}
			// A prefix that would not be fetched is not written.
			p.remember(p.c, story(7, 301), 300)
			p.end()
			if x := p.s.Stats(); c.want == 0 && x.Written > 0 {
				t.Errorf("%+v: %+v", c, x)
			}
		})
	}
}

// stuck is a store that never returns a file.
type stuck struct{ *flaky }

func (s stuck) Get(ctx context.Context, _ string, _ int64) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestSharedGivesUpOnASlowStore checks that a request waits as long as computing takes.
func TestSharedGivesUpOnASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // only waiting for the store takes time
		files := newFlaky(t)
		tokens := story(1, 301)
		write(t, files, tokens, 300)
		p := newProcess(t, stuck{files}, store.SharedOptions{}, nil)
		p.token = 60. / 301 // a minute for all of it
		began := time.Now()
		if n, x := fetched(p.c, tokens), p.s.Stats(); n != 0 || x.Late != 1 || x.Down || x.BytesPerSecond == 0 || time.Since(began) != time.Minute {
			t.Errorf("found %d tokens after %v, %+v", n, time.Since(began), x)
		}
		// The store is measured as slow now, and is not used if computing is faster.
		p.token = 1e-9
		if n, x := fetched(p.c, tokens), p.s.Stats(); n != 0 || x.Late != 1 {
			t.Errorf("found %d tokens, %+v", n, x)
		}
	})
}

// TestSharedFillsTheFolder checks that fetched files are written to the folder. The next process reads them there, and
// fetches only the rest.
func TestSharedFillsTheFolder(t *testing.T) {
	files := newFlaky(t)
	tokens := story(1, 1000)
	write(t, files, tokens, 300, 700)
	dir := filepath.Join(t.TempDir(), "local")
	disk := openDisk(t, dir, store.DiskOptions{})
	p := newProcess(t, files, store.SharedOptions{}, disk)
	if n := fetched(p.c, tokens[:400]); n != 300 {
		t.Fatalf("found %d tokens", n)
	}
	p.resume(tokens[:400], 300)
	p.end()
	disk.Close()
	disk = openDisk(t, dir, store.DiskOptions{})
	p = newProcess(t, files, store.SharedOptions{}, disk)
	if n := fetched(p.c, tokens[:310]); n != 300 || p.s.Stats().Fetched != 0 || disk.Stats().Read != 5 {
		t.Errorf("found %d tokens in the folder, %+v, %+v", n, p.s.Stats(), disk.Stats())
	}
	p.end()
	p = newProcess(t, files, store.SharedOptions{}, disk)
	gets := 0
	var mu sync.Mutex
	files.set(func(op, _ string, data []byte) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		if op == "get" {
			gets++
		}
		return data, nil
	})
	if n := fetched(p.c, tokens); n != 700 || gets != 7 { // pages 5 to 10 and the entry
		t.Errorf("found %d tokens with %d files of the store", n, gets)
	}
	p.resume(tokens, 700)
	// Without the store, the folder still has its files.
	files.set(func(string, string, []byte) ([]byte, error) { return nil, errors.New("gone") })
	p.end()
	disk.Close() // which writes queued files
	disk = openDisk(t, dir, store.DiskOptions{})
	q := newProcess(t, files, store.SharedOptions{}, disk)
	if n := fetched(q.c, append(slices.Clone(tokens[:700]), story(5, 200)...)); n != 700 {
		t.Errorf("found %d tokens without the store", n)
	}
}

// TestSharedKeepsSaltsApart stores under one salt and searches under another.
func TestSharedKeepsSaltsApart(t *testing.T) {
	files := newFlaky(t)
	tokens := story(1, 201)
	write(t, files, tokens, 200)
	p := newProcess(t, files, store.SharedOptions{}, nil)
	for salt, want := range map[Salt]int{{}: 200, {1}: 0, {15: 1}: 0} {
		ready := make(chan struct{})
		if p.c.Fetch(salt, Text{Tokens: tokens}, func() { close(ready) }) {
			<-ready
		}
		got := 0
		if h := p.c.Find(salt, Text{Tokens: tokens}, true); h != nil {
			got = h.Len()
			h.Release()
		}
		if got != want {
			t.Errorf("salt %x: found %d tokens, want %d", salt, got, want)
		}
	}
	q := newProcess(t, files, store.SharedOptions{Fingerprint: "another model"}, nil)
	if n := fetched(q.c, tokens); n != 0 {
		t.Errorf("found %d tokens of another model", n)
	}
}

// TestSharedSurvivesPanics has the store panic in every operation.
func TestSharedSurvivesPanics(t *testing.T) {
	for _, op := range []string{"list", "get", "put"} {
		files := newFlaky(t)
		tokens := story(1, 201)
		write(t, files, tokens, 200)
		files.set(func(at, _ string, data []byte) ([]byte, error) {
			if at == op {
				panic(fmt.Sprintf("fault in %s", at))
			}
			return data, nil
		})
		p := newProcess(t, files, store.SharedOptions{}, nil)
		got := fetched(p.c, tokens)
		p.remember(p.c, story(2, 201), 200)
		p.end()
		if want := map[string]int{"put": 200}[op]; got != want || p.log.lines("background task panicked") == 0 {
			t.Errorf("%s: found %d tokens, want %d; %d faults logged", op, got, want, p.log.lines("background task panicked"))
		}
	}
}

// TestSharedFetchesOnceForMany has requests with one prefix at the same time, as when a replica starts: it is fetched once,
// and all find it.
func TestSharedFetchesOnceForMany(t *testing.T) { synctest.Test(t, testSharedFetchesOnce) }

func testSharedFetchesOnce(t *testing.T) {
	files := newFlaky(t)
	tokens := story(1, 401)
	write(t, files, tokens, 400)
	p := newProcess(t, files, store.SharedOptions{}, nil)
	const many = 16
	release := make(chan struct{})
	gets := atomic.Int64{}
	files.set(func(op, _ string, data []byte) ([]byte, error) {
		if op == "get" {
			gets.Add(1)
			<-release
		}
		return data, nil
	})
	var ready sync.WaitGroup
	ready.Add(many)
	for range many {
		if !p.c.Fetch(Salt{}, Text{Tokens: tokens}, ready.Done) {
			t.Fatal("the store is not asked")
		}
	}
	synctest.Wait()
	close(release)
	ready.Wait()
	if n := found(p.c, tokens); n != 400 {
		t.Errorf("found %d tokens", n)
	}
	if n, x := gets.Load(), p.s.Stats(); n != 7 || x.Fetched != 1 {
		t.Errorf("%d files for %d requests: %+v", n, many, x)
	}
}

// TestSharedWithoutTheDrafter writes one entry without the drafter's state and a longer one with it, whose pages
// replace those that were written without. Another process completes the first entry.
func TestSharedWithoutTheDrafter(t *testing.T) {
	files := newFlaky(t)
	tokens := story(1, 301)
	p := newProcess(t, files, store.SharedOptions{}, nil)
	x := p.open()
	x.feed(tokens[200], tokens[:200]...)
	if err := x.storeWith(p.c, nil); err != nil {
		t.Fatal(err)
	}
	x.feed(tokens[300], tokens[200:300]...)
	if err := x.store(p.c); err != nil {
		t.Fatal(err)
	}
	x.close()
	p.end()
	for _, c := range []struct{ length, complete int }{{200, 0}, {300, 300}, {200, 200}} {
		p := newProcess(t, files, store.SharedOptions{}, nil)
		if n := fetched(p.c, tokens[:c.length+1]); n != c.complete {
			t.Errorf("found %d tokens with the drafter's state, want %d", n, c.complete)
		}
		h := p.c.Find(Salt{}, Text{Tokens: tokens[:c.length+1]}, false)
		if h == nil || h.Len() != c.length {
			t.Fatalf("%d tokens are not found", c.length)
		}
		x := p.open()
		x.restore(h, tokens)
		h.Release()
		if err := x.store(p.c); err != nil {
			t.Fatal(err)
		}
		x.close()
		p.end()
	}
}
