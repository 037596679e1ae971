package prefix

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/state"
)

// openDisk opens a folder for a test, which closes it at its end.
func openDisk(t *testing.T, dir string, o store.DiskOptions) *store.Disk {
	t.Helper()
	if o.Bytes == 0 {
		o.Bytes = 1 << 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	d, err := store.OpenDisk(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// fetched is found after a fetch.
func fetched(c *Cache, tokens []int32) int {
	ready := make(chan struct{})
	if c.Fetch(Salt{}, Text{Tokens: tokens}, func() { close(ready) }) {
		<-ready
	}
	return found(c, tokens)
}

// fill writes stories to a folder and returns its files.
func fill(t *testing.T, dir string, o store.DiskOptions, stories, length int) []string {
	t.Helper()
	return newToy(t, 1<<20).fill(dir, o, stories, length)
}

func (n *toy) fill(dir string, o store.DiskOptions, stories, length int) []string {
	t := n.t
	t.Helper()
	d := openDisk(t, dir, o)
	c := n.cache(d)
	for i := range stories {
		n.remember(c, story(uint64(i), length+1), length)
	}
	c.Close()
	d.Close()
	return folder(t, dir)
}

func folder(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestDiskOutlivesTheProcess writes boundaries of a text, and reads them with a new cache of the same folder. Some of
// them are behind pages that are in memory.
func TestDiskOutlivesTheProcess(t *testing.T) {
	for i := range mixtures {
		t.Run(fmt.Sprintf("mixture=%d", i), func(t *testing.T) { testDiskOutlives(t, i) })
	}
}

func testDiskOutlives(t *testing.T, mixture int) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "made", "when needed")
	n := newMixture(t, mixture, 100, 100)
	d := openDisk(t, dir, store.DiskOptions{Fingerprint: "a"})
	c := n.cache(d)
	tokens := story(1, 400)
	lengths := []int{1, 63, 64, 65, 130, 193, 300}
	n.remember(c, tokens, lengths...)
	branch := append(slices.Clone(tokens[:250]), story(2, 100)...)
	n.remember(c, branch, 251)
	windows := map[int]bool{}
	for _, l := range append([]int{251}, lengths...) {
		for i := c.firstWindow(l); i < depth(l); i++ {
			windows[i] = true
		}
	}
	c.Close()
	d.Close()
	// Each page is written once: four of the text, those of the branch are among them.
	if got, want := len(folder(t, dir)), len(lengths)+1+4+len(windows); got != want {
		t.Errorf("%d files, want %d", got, want)
	}
	n = newMixture(t, mixture, 100, 100)
	d = openDisk(t, dir, store.DiskOptions{Fingerprint: "a"})
	c = n.cache(d)
	for _, l := range lengths {
		if got := fetched(c, tokens[:l+1]); got != l {
			t.Fatalf("found %d tokens, want %d", got, l)
		}
		h := c.Find(Salt{}, Text{Tokens: tokens[:l+1]}, true)
		x := n.open()
		x.restore(h, tokens)
		h.Release()
		x.close()
	}
	before := d.Stats().Read
	if got := fetched(c, branch); got != 251 {
		t.Errorf("found %d tokens of the branch, want 251", got)
	}
	if read, want := d.Stats().Read-before, 1+max(0, depth(251)-c.firstWindow(251)); read != int64(want) {
		t.Errorf("%d files read for the branch, want %d: its pages are in memory, except for those of windows", read, want)
	}
	if c.Fetch(Salt{}, Text{Tokens: branch}, func() {}) {
		t.Error("the disk promises more than what is in memory")
	}
	h := c.Find(Salt{}, Text{Tokens: branch}, true)
	x := n.open()
	x.restore(h, branch)
	h.Release()
	x.close()
	c.Close()
	if s := n.pool.Stats(); s.Used != 0 || s.Pages != 0 {
		t.Errorf("after everything was closed: %+v", s)
	}
}

func TestDiskTellsModelsApart(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, store.DiskOptions{Fingerprint: "a"}, 1, 100)
	for name, open := range map[string]func(n *toy) *Cache{
		"another fingerprint": func(n *toy) *Cache { return n.cache(openDisk(t, dir, store.DiskOptions{Fingerprint: "b"})) },
		"another layout": func(n *toy) *Cache {
			o := Options{Target: toyTarget, Drafts: []state.Layout{toyMemory}, Tiers: store.Tiers{Disk: openDisk(t, dir, store.DiskOptions{Fingerprint: "a"})}}
			o.Target.Layers = append([]state.Layer{state.KV{Type: dtype.F32, Heads: 1, Key: 1, Value: 2}}, toyTarget.Layers[1:]...)
			return New(n.pool, o)
		},
	} {
		c := open(newToy(t, 1<<20))
		if got := fetched(c, story(0, 101)); got != 0 {
			t.Errorf("%s: found %d tokens", name, got)
		}
		c.Close()
	}
	// The space for drafts is not part of an entry.
	n := newToy(t, 1<<20)
	o := Options{Target: toyTarget, Drafts: []state.Layout{toyMemory}, Tiers: store.Tiers{Disk: openDisk(t, dir, store.DiskOptions{Fingerprint: "a"})}}
	o.Target.MaxDrafts += 3
	c := New(n.pool, o)
	defer c.Close()
	if got := fetched(c, story(0, 101)); got != 100 {
		t.Errorf("more room for drafts: found %d tokens, want 100", got)
	}
}

// TestDiskIgnoresWhatItCannotUse damages files in every way. Each is a miss, logged in one line and removed.
func TestDiskIgnoresWhatItCannotUse(t *testing.T) {
	foreign := newMixture(t, len(mixtures)-1, 20, 4).fill(t.TempDir(), store.DiskOptions{Fingerprint: "b"}, 1, 100)
	for name, damage := range map[string]func(path string, data []byte) []byte{
		"a bit":         func(_ string, b []byte) []byte { b[len(b)/2] ^= 4; return b },
		"the checksum":  func(_ string, b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"a cut":         func(_ string, b []byte) []byte { return b[:len(b)-40] },
		"emptiness":     func(string, []byte) []byte { return nil },
		"more bytes":    func(_ string, b []byte) []byte { return append(b, 0) },
		"another magic": func(_ string, b []byte) []byte { b[0]++; return reseal(b) },
		"a new version": func(_ string, b []byte) []byte { b[8]++; return reseal(b) },
		"lengths":       func(_ string, b []byte) []byte { b[headerBytes]++; return reseal(b) },
		"huge lengths":  func(_ string, b []byte) []byte { b[headerBytes+7] = 0xff; return reseal(b) },
		"a large file":  func(_ string, b []byte) []byte { return reseal(append(b, make([]byte, 2<<20)...)) },
		"a foreign file": func(path string, b []byte) []byte {
			for _, s := range foreign {
				if filepath.Ext(s) == filepath.Ext(path) {
					b, _ = os.ReadFile(s)
				}
			}
			return b
		},
	} {
		for mixture, suffix := range map[int]string{0: ".page", len(mixtures) - 2: ".end", len(mixtures) - 1: ".win"} {
			t.Run(name+" "+suffix, func(t *testing.T) {
				dir := t.TempDir()
				var victim string
				for _, f := range newMixture(t, mixture, 20, 4).fill(dir, store.DiskOptions{Fingerprint: "a"}, 1, 100) {
					if strings.HasSuffix(f, suffix) {
						victim = f
					}
				}
				data := filetest.Read(t, victim)
				filetest.Write(t, victim, damage(victim, data))
				var log bytes.Buffer
				d := openDisk(t, dir, store.DiskOptions{Fingerprint: "a", Bytes: 8 << 20, Log: slog.New(slog.NewTextHandler(&log, nil))})
				n := newMixture(t, mixture, 20, 4)
				c := n.cache(d)
				if got := fetched(c, story(0, 101)); got != 0 {
					t.Errorf("found %d tokens", got)
				}
				if c.Fetch(Salt{}, Text{Tokens: story(0, 101)}, func() {}) {
					t.Error("the disk promises it again")
				}
				if lines := strings.Count(log.String(), "\n"); lines != 1 || d.Stats().Ignored != 1 || !strings.Contains(log.String(), filepath.Base(victim)) {
					t.Errorf("%d lines in the log, %+v: %s", lines, d.Stats(), log.String())
				}
				n.remember(c, story(0, 101), 100)
				c.Close()
				d.Close()
				c = newMixture(t, mixture, 20, 4).cache(openDisk(t, dir, store.DiskOptions{Fingerprint: "a"}))
				defer c.Close()
				if got := fetched(c, story(0, 101)); got != 100 {
					t.Errorf("written again: found %d tokens", got)
				}
			})
		}
	}
}

// headerBytes is the size of a file's header: magic, version, number of sections, key.
const headerBytes = 8 + 4 + 4 + 16

// reseal corrects the checksum.
func reseal(b []byte) []byte {
	b = b[:len(b)-sha256.Size]
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

func TestDiskLeavesForeignFilesAlone(t *testing.T) {
	dir := t.TempDir()
	var old []string
	for _, name := range []string{"notes.txt", "12.page", strings.Repeat("g", 32) + ".page", strings.Repeat("A", 32) + ".page", "x.tmp"} {
		old = append(old, filepath.Join(dir, name))
		filetest.Write(t, old[len(old)-1], "mine")
	}
	var log bytes.Buffer
	d := openDisk(t, dir, store.DiskOptions{Bytes: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if x := d.Stats(); x.Files != 0 || x.Bytes != 0 || x.Ignored != 4 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("%+v: %s", x, log.String())
	}
	d.Close()
	for _, f := range old {
		if _, err := os.Stat(f); err != nil {
			t.Error(err)
		}
	}
	// The temporary file of a killed process is removed after an hour.
	if err := os.Chtimes(filepath.Join(dir, "x.tmp"), time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	openDisk(t, dir, store.DiskOptions{})
	if _, err := os.Stat(filepath.Join(dir, "x.tmp")); err == nil {
		t.Error("an unfinished file is still there")
	}
	if _, err := store.OpenDisk(filepath.Join(dir, "notes.txt"), store.DiskOptions{Bytes: 1}); err == nil {
		t.Error("a file was opened as a folder")
	}
	if _, err := store.OpenDisk(dir, store.DiskOptions{}); err == nil {
		t.Error("a folder without a bound was opened")
	}
}

// TestDiskStaysWithinItsBound writes more than fits, and finds the most recently used entries.
func TestDiskStaysWithinItsBound(t *testing.T) {
	dir := t.TempDir()
	one := int64(0)
	for _, f := range fill(t, dir, store.DiskOptions{}, 1, 100) {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		one += info.Size()
	}
	dir = t.TempDir()
	d := openDisk(t, dir, store.DiskOptions{Bytes: 3 * one})
	n := newToy(t, 1<<20)
	c := n.cache(d)
	for i := range uint64(6) {
		n.remember(c, story(i, 101), 100)
	}
	c.Close()
	d.Close()
	check := func(stats store.DiskStats) {
		t.Helper()
		total := int64(0)
		for _, f := range folder(t, dir) {
			info, err := os.Stat(f)
			if err != nil {
				t.Fatal(err)
			}
			total += info.Size()
		}
		if total != stats.Bytes || total > 3*one || stats.Files != len(folder(t, dir)) {
			t.Errorf("%d bytes in the folder, %+v, bound %d", total, stats, 3*one)
		}
	}
	check(d.Stats())
	if d.Stats().Removed != 6 { // a page and an entry of three texts
		t.Errorf("%+v", d.Stats())
	}
	// The next process removes files by their times.
	for i, f := range folder(t, dir) {
		if err := os.Chtimes(f, time.Time{}, time.Now().Add(-time.Hour-time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	d = openDisk(t, dir, store.DiskOptions{Bytes: 3 * one})
	c = newToy(t, 1<<20).cache(d)
	if got := fetched(c, story(3, 101)); got != 100 {
		t.Errorf("found %d tokens of the third text", got)
	}
	c.Close()
	d.Close()
	d = openDisk(t, dir, store.DiskOptions{Bytes: one})
	check(d.Stats())
	c = newToy(t, 1<<20).cache(d)
	defer c.Close()
	for i := range 6 {
		want := 0
		if i == 3 {
			want = 100
		}
		if got := fetched(c, story(uint64(i), 101)); got != want {
			t.Errorf("text %d: found %d tokens, want %d", i, got, want)
		}
	}
}

// unwritable is a device whose writes fail.
type unwritable struct{ backend.Backend }

func (unwritable) WriteBytes(backend.Tensor, []byte) error { return errors.New("the device fails") }

// TestFilesOutliveTheDevice checks that no file is ignored because of a device error.
func TestFilesOutliveTheDevice(t *testing.T) {
	dir := t.TempDir()
	files := fill(t, dir, store.DiskOptions{}, 1, 100)
	n := newToy(t, 0)
	n.pool = state.NewPool(unwritable{n.b}, 1<<20)
	d := openDisk(t, dir, store.DiskOptions{})
	c := n.cache(d)
	defer c.Close()
	if got := fetched(c, story(0, 101)); got != 0 || d.Stats().Ignored != 0 || !slices.Equal(folder(t, dir), files) {
		t.Errorf("found %d tokens, %+v, and %d of %d files are left", got, d.Stats(), len(folder(t, dir)), len(files))
	}
}

// TestDiskDropsWhatItsQueueCannotTake stores a long text with a short queue: its first
// pages are written, and with the next boundary some more.
func TestDiskDropsWhatItsQueueCannotTake(t *testing.T) {
	dir := t.TempDir()
	page := toyTarget.PageBytes() + toyMemory.PageBytes()
	o := store.DiskOptions{QueueBytes: 3*page + 1000}
	for round, want := range []int{3, 6, 9, 10, 10} {
		n := newToy(t, 1<<20)
		d := openDisk(t, dir, o)
		c := n.cache(d)
		n.remember(c, story(0, 600), 9*64+20)
		c.Close()
		d.Close()
		if got := len(folder(t, dir)); got != want || round < 3 != (d.Stats().Dropped > 0) {
			t.Errorf("round %d: %d files, want %d; %+v", round, got, want, d.Stats())
		}
	}
	c := newToy(t, 1<<20).cache(openDisk(t, dir, o))
	defer c.Close()
	if got := fetched(c, story(0, 600)); got != 9*64+20 {
		t.Errorf("found %d tokens", got)
	}
}

// TestDiskTakesAnEntryLargerThanItsQueue writes an entry whose pages of windows are more than the queue takes otherwise.
func TestDiskTakesAnEntryLargerThanItsQueue(t *testing.T) {
	n := newMixture(t, len(mixtures)-1, 20, 4)
	d := openDisk(t, t.TempDir(), store.DiskOptions{QueueBytes: n.target.PageBytes() + 1000})
	c := n.cache(d)
	n.remember(c, story(0, 200), 70)
	c.Close()
	d.Close()
	if x := d.Stats(); x.Dropped > 0 || x.Files != 3 {
		t.Errorf("%+v, want three files", x)
	}
}

// TestEntriesShareTheirWindows writes boundaries of a conversation to a folder: pages of windows are there once, and no file is much
// larger than them.
func TestEntriesShareTheirWindows(t *testing.T) {
	dir := t.TempDir()
	n := newToy(t, 1<<22)
	n.target = state.Layout{Layers: []state.Layer{state.KV{Type: dtype.F16, Heads: 2, Key: 16, Value: 16, Window: 1024}, state.KV{Type: dtype.F16, Heads: 1, Key: 16, Value: 16}}}
	d := openDisk(t, dir, store.DiskOptions{Bytes: 1 << 24})
	c := n.cache(d)
	var lengths []int
	for turn := 1300; turn < 2000; turn += 230 {
		lengths = append(lengths, turn, turn/64*64+64, turn+150) // the last turn, the last whole page, the answer
	}
	n.remember(c, story(1, 2300), lengths...)
	c.Close()
	d.Close()
	sizes := map[string]int64{}
	for _, f := range folder(t, dir) {
		sizes[filepath.Ext(f)] += int64(len(filetest.Read(t, f)))
	}
	page := n.target.WindowPageBytes()
	first, last := (lengths[0]+1-1024)/64, depth(lengths[len(lengths)-1])
	if want := int64(last-first) * page; sizes[".win"] < want || sizes[".win"] > want+want/50 {
		t.Errorf("%d bytes of windows, want those of %d pages: %d", sizes[".win"], last-first, want)
	}
	if most := int64(len(lengths)) * (page + n.target.PageBytes() + n.memory.PageBytes() + 500); sizes[".end"] > most {
		t.Errorf("%d entries take %d bytes, want at most %d", len(lengths), sizes[".end"], most)
	}
	if before := int64(len(lengths)) * 16 * page; before < 3*(sizes[".win"]+sizes[".end"]) {
		t.Errorf("%d bytes instead of %d", sizes[".win"]+sizes[".end"], before)
	}
	t.Logf("%d entries: %v", len(lengths), sizes)
}

// TestDiskFetchSurvivesPressure fetches into a pool that is nearly full.
func TestDiskFetchSurvivesPressure(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, store.DiskOptions{}, 6, 200)
	page := toyTarget.PageBytes() + toyMemory.PageBytes()
	for pages := int64(1); pages < 12; pages += 2 {
		n := newToy(t, pages*page)
		c := n.cache(openDisk(t, dir, store.DiskOptions{}))
		for i := range uint64(12) {
			got := fetched(c, story(i%6, 201))
			if enough := pages >= 5; got != 0 && got != 200 || enough != (got == 200) {
				t.Errorf("room for %d pages: found %d tokens of text %d", pages, got, i%6)
			}
		}
		if used, x := n.pool.Used(), c.Stats(); used != x.Bytes {
			t.Errorf("room for %d pages: %d bytes are in use, the cache has %d", pages, used, x.Bytes)
		}
		c.Close()
	}
}

// TestDiskWithoutTheDrafter writes entries with and without the drafter's state, whose pages are the same files. Another
// process finds all of them, and those with the drafter's state if all of their pages have it.
func TestDiskWithoutTheDrafter(t *testing.T) {
	tokens := story(1, 300)
	for name, c := range map[string]struct {
		with  []int // lengths that are stored with the drafter's state
		found int   // length of the longest entry with it
	}{
		"none":     {nil, 0},
		"shorter":  {[]int{65, 130}, 130},
		"the last": {[]int{280}, 280}, // its pages replace those that were written without
		"all":      {[]int{65, 130, 200, 280}, 280},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			n := newToy(t, 1<<20)
			d := openDisk(t, dir, store.DiskOptions{})
			cache := n.cache(d)
			x := n.open()
			for _, l := range []int{65, 130, 200, 280} {
				x.feed(tokens[l], tokens[len(x.tokens):l]...)
				var memory *state.State
				if slices.Contains(c.with, l) {
					memory = x.memory
				}
				if err := x.storeWith(cache, memory); err != nil {
					t.Fatal(err)
				}
			}
			x.close()
			cache.Close()
			d.Close()
			n = newToy(t, 1<<20)
			d = openDisk(t, dir, store.DiskOptions{})
			cache = n.cache(d)
			defer cache.Close()
			for _, l := range []int{65, 130, 200, 280} {
				fetched(cache, tokens[:l+1])
				h := cache.Find(Salt{}, Text{Tokens: tokens}, false)
				if h == nil || h.Len() != l {
					t.Fatalf("%d tokens are not found", l)
				}
				x := n.open()
				x.restore(h, tokens)
				h.Release()
				x.close()
			}
			if got := found(cache, tokens); got != c.found {
				t.Errorf("found %d tokens with the drafter's state, want %d", got, c.found)
			}
		})
	}
}
