package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
)

// later moves the clock on, so that files which were just written count as left alone.
func later(t *testing.T) {
	t.Helper()
	now = func() time.Time { return time.Now().Add(time.Hour) }
	t.Cleanup(func() { now = time.Now })
}

// tick waits until the clock of the file system has advanced since a file was changed: within
// a tick a change is not detected, and records are not written.
func tick(t *testing.T, path string) {
	t.Helper()
	changed := func(path string) int64 {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() //nolint:errcheck // read only
		s, _ := stampOf(f)
		return s.Changed
	}
	probe := path + ".probe"
	for then := changed(path); ; {
		filetest.Write(t, probe, "")
		if changed(probe) > then {
			break
		}
	}
	if err := os.Remove(probe); err != nil {
		t.Fatal(err)
	}
}

// sumFolder writes a model folder in which every file affects the sum: shards with an
// index, and heads in sidecars with a manifest and a config.
func sumFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(9, 1))
	weights := func(name string) string {
		data := make([]byte, 4000)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		return encode(t, nil, tensor{Decl{name, dtype.U8, []int{len(data)}}, data})
	}
	for name, text := range map[string]string{
		"config.json":                  `{"model_type": "x", "quantization": {"bits": 4, "group_size": 64}}`,
		"model.safetensors.index.json": `{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}`,
		"model-1.safetensors":          weights("a"),
		"model-2.safetensors":          weights("b"),
		"mtp.safetensors":              weights("c"),
		"mtp/weights.safetensors":      weights("d"),
		"mtp/manifest.json":            `{"made": "by hand"}`,
		"mtp/model.safetensors":        weights("e"),
		"mtp/config.json":              `{"model_type": "y", "quantization": {"bits": 8, "group_size": 32}}`,
	} {
		path := filepath.Join(dir, name)
		filetest.Write(t, path, text)
	}
	return dir
}

// sumOf opens a folder and hashes it.
func sumOf(t *testing.T, dir, records string) (Sum, error) {
	t.Helper()
	c, err := Open(dir)
	if err != nil {
		return Sum{}, err
	}
	defer c.Close() //nolint:errcheck // read only
	return c.Sum(t.Context(), records)
}

func mustSum(t *testing.T, dir, records string) Sum {
	t.Helper()
	s, err := sumOf(t, dir, records)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSumCoversEveryByte flips single bits of the files of a folder, anywhere: a folder that
// can still be opened has another sum.
func TestSumCoversEveryByte(t *testing.T) {
	dir := sumFolder(t)
	before := mustSum(t, dir, "")
	if again := mustSum(t, dir, ""); again != before {
		t.Fatalf("%v, then %v", before, again)
	}
	rng := rand.New(rand.NewPCG(3, 3))
	opened := 0
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for range 60 {
			at := rng.IntN(len(data))
			flipped := bytes.Clone(data)
			flipped[at] ^= 1 << rng.IntN(8)
			if err := os.WriteFile(path, flipped, 0o600); err != nil {
				return err
			}
			after, err := sumOf(t, dir, "")
			if err != nil {
				continue // a header that is none any more
			}
			if opened++; after.ID == before.ID {
				t.Errorf("byte %d of %s is another, and the sum is not", at, e.Name())
			}
		}
		return os.WriteFile(path, data, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	if mustSum(t, dir, "") != before || opened < 240 {
		t.Errorf("%d flips were tried", opened)
	}
}

// TestSumCrossesSegments flips bytes at the edges of the segments of a file of several.
func TestSumCrossesSegments(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, filepath.Join(dir, configFile), `{"model_type": "x"}`)
	const n = 2*segmentBytes + 1234
	path := filepath.Join(dir, "model.safetensors")
	text := encode(t, nil, tensor{Decl{"a", dtype.U8, []int{n}}, bytes.Repeat([]byte("x"), n)})
	filetest.Write(t, path, text)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // of a test
	seen := map[string]int64{mustSum(t, dir, "").ID: -1}
	for _, at := range []int64{segmentBytes - 1, segmentBytes, 2*segmentBytes - 1, 2 * segmentBytes, int64(len(text)) - 1} {
		if _, err := f.WriteAt([]byte("y"), at); err != nil {
			t.Fatal(err)
		}
		id := mustSum(t, dir, "").ID
		if other, ok := seen[id]; ok {
			t.Errorf("the sum with byte %d changed is that of %d", at, other)
		}
		seen[id] = at
	}
}

// TestSumIsPaidOnce keeps records, and finds a folder again by the links of another one.
func TestSumIsPaidOnce(t *testing.T) {
	later(t)
	dir, records := sumFolder(t), filepath.Join(t.TempDir(), "records")
	first := mustSum(t, dir, records)
	if again := mustSum(t, dir, records); again.ID != first.ID || first.Hashed == 0 || again.Hashed != 0 {
		t.Errorf("%+v, then %+v", first, again)
	}
	linked := t.TempDir()
	for _, name := range []string{"config.json", "model.safetensors.index.json", "model-1.safetensors", "model-2.safetensors", "mtp.safetensors", "mtp"} {
		if err := os.Symlink(filepath.Join(dir, name), filepath.Join(linked, name)); err != nil {
			t.Fatal(err)
		}
	}
	if again := mustSum(t, linked, records); again.ID != first.ID || again.Hashed != 0 {
		t.Errorf("by links %+v, want %+v", again, first)
	}
	if without := mustSum(t, dir, ""); without != first {
		t.Errorf("without records %+v, want %+v", without, first)
	}
}

// TestRecordsAreNotBelievedForLong changes a file in ways that its size and its time of
// writing do not show, and the records themselves.
func TestRecordsAreNotBelievedForLong(t *testing.T) {
	later(t)
	dir, records := sumFolder(t), t.TempDir()
	path := filepath.Join(dir, "model-2.safetensors")
	data := filetest.Read(t, path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	before := mustSum(t, dir, records)
	put := func(name string, data []byte) {
		t.Helper()
		tick(t, path)
		filetest.Write(t, name, data)
		if err := os.Chtimes(name, info.ModTime(), info.ModTime()); err != nil { // as if it had not changed
			t.Fatal(err)
		}
	}
	other := bytes.Clone(data)
	other[len(other)-1] ^= 1
	for name, change := range map[string]func(){
		"written in place": func() { put(path, other) },
		"replaced": func() {
			put(path+".new", other)
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		if mustSum(t, dir, records).ID != before.ID {
			t.Fatal("the folder is not what it was")
		}
		change()
		if after := mustSum(t, dir, records); after.ID == before.ID || after.Hashed != int64(len(data)) {
			t.Errorf("%s: %+v, before %+v", name, after, before)
		}
		put(path, data)
	}
	list, err := filepath.Glob(filepath.Join(records, "*.json"))
	if err != nil || len(list) != 5 {
		t.Fatal(list, err)
	}
	for _, bad := range []string{"", "{", `{"Path": "/", "Sum": "00"}`, "null"} {
		for _, r := range list {
			filetest.Write(t, r, bad)
		}
		if after := mustSum(t, dir, records); after.ID != before.ID || after.Hashed == 0 {
			t.Errorf("with records %q: %+v, want %+v", bad, after, before)
		}
	}
	// A record of one file under the name of another.
	first := filetest.Read(t, list[0])
	for _, r := range list[1:] {
		filetest.Write(t, r, first)
	}
	if after := mustSum(t, dir, records); after.ID != before.ID {
		t.Errorf("with records of other files: %+v, want %+v", after, before)
	}
}

// TestFreshFilesHaveNoRecord: a change within a tick of the clock after the hashing
// would not be detected.
func TestFreshFilesHaveNoRecord(t *testing.T) {
	start := time.Now()
	now = func() time.Time { return start }
	t.Cleanup(func() { now = time.Now })
	dir, records := sumFolder(t), t.TempDir()
	first := mustSum(t, dir, records)
	list, err := os.ReadDir(records)
	if err != nil || len(list) != 0 {
		t.Errorf("%v %v", list, err)
	}
	if again := mustSum(t, dir, records); again != first {
		t.Errorf("%+v, then %+v", first, again)
	}
}

// TestSumRefusesWhatChanges changes a file between its opening and the end of its hashing.
func TestSumRefusesWhatChanges(t *testing.T) {
	dir := sumFolder(t)
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // read only
	if err := c.Unchanged(); err != nil {
		t.Error(err)
	}
	path := filepath.Join(dir, "mtp.safetensors")
	tick(t, path)
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Sum(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "mtp.safetensors changed while it was read") {
		t.Errorf("a file that was replaced: %v", err)
	}
	if err := c.Unchanged(); err == nil || !strings.Contains(err.Error(), "load the model again") {
		t.Errorf("a file that was replaced: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Sum(ended, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// TestSumReadsWhatWasMapped has a file system that assigns new inodes: the mapping is
// hashed, and no record kept.
func TestSumReadsWhatWasMapped(t *testing.T) {
	later(t)
	dir, records := sumFolder(t), t.TempDir()
	want := mustSum(t, dir, "")
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // read only
	c.files[0].Inode++
	if got, err := c.Sum(t.Context(), records); err != nil || got != want {
		t.Errorf("%+v %v, want %+v", got, err, want)
	}
	if err := c.Unchanged(); err != nil {
		t.Error(err)
	}
	if list, err := os.ReadDir(records); err != nil || len(list) != 4 { // of five files
		t.Errorf("%v %v", list, err)
	}
}

// TestRecordsAreBounded has more records than are kept.
func TestRecordsAreBounded(t *testing.T) {
	later(t)
	dir, records := sumFolder(t), t.TempDir()
	for i := range maxRecords {
		text, _ := json.Marshal(recorded{Format: i})
		filetest.Write(t, filepath.Join(records, strings.Repeat("0", i/64)+string(rune('A'+i%64))+".json"), text)
	}
	mustSum(t, dir, records)
	if list, err := os.ReadDir(records); err != nil || len(list) > 8 {
		t.Errorf("%d records, %v", len(list), err)
	}
	if again := mustSum(t, dir, records); again.Hashed != 0 {
		t.Errorf("%+v", again)
	}
}

// BenchmarkSum hashes a file of 512 MiB that is in the page cache, and finds it in its record.
func BenchmarkSum(b *testing.B) {
	dir := b.TempDir()
	filetest.Write(b, filepath.Join(dir, configFile), `{"model_type": "x"}`)
	const n = 512 << 20
	text := encode(b, nil, tensor{Decl{"a", dtype.U8, []int{n}}, make([]byte, n)})
	filetest.Write(b, filepath.Join(dir, "model.safetensors"), text)
	now = func() time.Time { return time.Now().Add(time.Hour) }
	defer func() { now = time.Now }()
	for name, records := range map[string]string{"hashed": "", "recorded": b.TempDir()} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(n)
			c, err := Open(dir)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()                                        //nolint:errcheck // read only
			if _, err := c.Sum(b.Context(), records); err != nil { // which makes the record
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := c.Sum(b.Context(), records); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
