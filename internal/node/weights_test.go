package node

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	_ "github.com/foretoken/foretoken/internal/model/glm"
	_ "github.com/foretoken/foretoken/internal/model/qwen35"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/models"
)

// copyOf copies a checkpoint, so that its files may be changed.
func copyOf(t *testing.T, from string) string {
	t.Helper()
	dir := t.TempDir()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		filetest.Write(t, filepath.Join(dir, e.Name()), filetest.Read(t, filepath.Join(from, e.Name())))
	}
	return dir
}

// matricesOf are the matrices of a checkpoint as a leader loads them.
func matricesOf(t *testing.T, path string) []dtype.Matrix {
	t.Helper()
	c, err := models.Open(path, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	v, err := model.Inventory(c, weights.Whole, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var list []dtype.Matrix
	for i := range v.Weights {
		if w := &v.Weights[i]; w.IsMatrix() {
			stack, err := w.Matrices()
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, stack...)
		}
	}
	return list
}

// paths always lists the same checkpoints.
func paths(list ...string) func() []string { return func() []string { return list } }

// store is weights with their log.
type store struct {
	*Weights
	log bytes.Buffer
}

func openStore(t *testing.T, o WeightOptions) *store {
	t.Helper()
	s := &store{}
	o.Log = slog.New(slog.NewTextHandler(&s.log, nil))
	w, err := OpenWeights(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Weights = w
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// load asks for matrices, and keeps those that are sent.
func (s *store) load(t *testing.T, list []dtype.Matrix) {
	t.Helper()
	for i := range list {
		form := list[i]
		form.Data, form.Scales, form.Biases = nil, nil, nil
		d := remote.DigestOf(&list[i])
		m, ok, err := s.Find(d, &form)
		switch {
		case err != nil:
			t.Fatal(err)
		case !ok:
			s.Keep(d, &list[i])
		case remote.DigestOf(&m) != d:
			t.Fatalf("matrix %d of %d×%d is another", i, m.Rows, m.Cols)
		}
	}
}

func TestOwnFilesAreUsed(t *testing.T) {
	folder := t.TempDir()
	list := matricesOf(t, golden.Dir(t, "moe"))
	for _, start := range []string{"first", "second"} {
		s := openStore(t, WeightOptions{Models: paths(golden.Dir(t, "moe"), models.Tiny, "none"), Folder: folder, Limit: 1 << 30})
		s.load(t, list)
		if c := s.Counts(); c.Own != int64(len(list)) || c.Sent+c.Cached != 0 {
			t.Errorf("%s start: %+v of %d; %s", start, c, len(list), &s.log)
		}
		if !strings.Contains(s.log.String(), "model=none") {
			t.Errorf("nothing is said of a model that is not there: %s", &s.log)
		}
		if known := s.models[0].list[0].digests != nil; !known {
			t.Error("the digests are not known")
		}
		if held := s.Held(); !strings.HasSuffix(held, ": layers 0-3, embed_tokens, lm_head, mtp") {
			t.Errorf("it holds %s", held)
		}
		s.Idle()
		if _, err := os.Stat(s.models[0].index); err != nil {
			t.Error(err)
		}
	}
}

func TestChangedBytesAreNotUsed(t *testing.T) {
	list, dir, folder := matricesOf(t, golden.Dir(t, "moe")), copyOf(t, golden.Dir(t, "moe")), t.TempDir()
	name := filepath.Join(dir, "model.safetensors")
	data := filetest.Read(t, name)
	data[bytes.Index(data, list[len(list)/2].Data)+1] ^= 1
	filetest.Write(t, name, data)
	s := openStore(t, WeightOptions{Models: paths(dir), Folder: folder, Limit: 1 << 30})
	s.load(t, list)
	if c := s.Counts(); c.Sent != 1 || c.Own != int64(len(list))-1 {
		t.Errorf("%+v", c)
	}
	if log := s.log.String(); !strings.Contains(log, "the leader has other bytes") || !strings.Contains(log, "model.safetensors: tensor ") {
		t.Errorf("the tensor is not named: %s", log)
	}
	// The next start has it from the cache.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, WeightOptions{Models: paths(dir), Folder: folder, Limit: 1 << 30})
	s.load(t, list)
	if c := s.Counts(); c.Cached != 1 || c.Sent != 0 {
		t.Errorf("%+v", c)
	}
}

// A model that is added is found by the next leader. One that is changed or removed is not used, and other models are.
func TestFilesComeAndGo(t *testing.T) {
	list, dir := matricesOf(t, golden.Dir(t, "moe")), copyOf(t, golden.Dir(t, "moe"))
	there := []string{models.Tiny}
	s := openStore(t, WeightOptions{Models: func() []string { return there }, Folder: t.TempDir()})
	load := func(what string, own, sent int) {
		t.Helper()
		before := s.Counts()
		s.load(t, list)
		if c := s.Counts(); c.Own-before.Own != int64(own) || c.Sent-before.Sent != int64(sent) {
			t.Errorf("%s: %+v after %+v, want %d more of its own and %d sent: %s", what, c, before, own, sent, &s.log)
		}
	}
	load("nothing", 0, len(list))
	there = append(there, dir)
	s.Begin()
	load("added", len(list), 0)
	s.Begin()
	kept := s.models[1]
	if load("unchanged", len(list), 0); s.models[1] != kept {
		t.Error("files that have not changed were opened again")
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "model.safetensors"), later, later); err != nil {
		t.Fatal(err)
	}
	load("changed", 0, len(list))
	if !strings.Contains(s.log.String(), notUsed) {
		t.Errorf("nothing is said of a model that changed: %s", &s.log)
	}
	s.Begin()
	load("changed, for the next leader", len(list), 0)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	there = append(there, golden.Dir(t, "moe"))
	s.Begin()
	load("removed, and there elsewhere", len(list), 0)
}

// Metrics do not wait for digests.
func TestCountsDoNotWaitForFiles(t *testing.T) {
	listing, listed := make(chan bool), make(chan bool)
	s := openStore(t, WeightOptions{Models: func() []string { listing <- true; <-listed; return nil }})
	found := make(chan bool)
	go func() {
		_, ok, _ := s.Find(remote.Digest{}, &dtype.Matrix{}) // there is nothing
		found <- ok
	}()
	<-listing
	if c := s.Counts(); c != (Counts{}) || s.Held() != "" {
		t.Errorf("%+v", c)
	}
	listed <- true
	if <-found {
		t.Error("a matrix was found in no file")
	}
}

// Bytes that change while size and times of a file do not are a damaged disk: that is an error.
func TestDamagedFileIsNamed(t *testing.T) {
	list, folder := matricesOf(t, golden.Dir(t, "moe")), t.TempDir()
	s := openStore(t, WeightOptions{Models: paths(golden.Dir(t, "moe")), Folder: folder})
	s.load(t, list)
	s.Idle()
	index := s.models[0].index
	var x indexed
	filetest.Decode(t, filetest.Read(t, index), &x)
	other := remote.Digest{1, 2, 3}
	m := s.models[0].list[3]
	copy(x.Digests[m.weight.Name], other[:])
	filetest.Write(t, index, filetest.Encode(t, &x))
	s = openStore(t, WeightOptions{Models: paths(golden.Dir(t, "moe")), Folder: folder})
	_, ok, err := s.Find(other, &m.forms[0])
	_, tensor := m.weight.Place()
	if ok || err == nil || !strings.Contains(err.Error(), "model.safetensors: tensor "+tensor+": its bytes are not those that were indexed") {
		t.Errorf("%v, %v", ok, err)
	}
	// An index that cannot be read is made again.
	filetest.Write(t, index, "garbage")
	s = openStore(t, WeightOptions{Models: paths(golden.Dir(t, "moe")), Folder: folder})
	s.load(t, list)
	if c := s.Counts(); c.Sent != 0 {
		t.Errorf("%+v", c)
	}
}

func TestCacheIsVerifiedAndBounded(t *testing.T) {
	list, folder := matricesOf(t, golden.Dir(t, "moe"))[:40], t.TempDir()
	total := int64(0)
	for i := range list {
		total += list[i].Bytes()
	}
	open := func(limit int64) *store { return openStore(t, WeightOptions{Folder: folder, Limit: limit}) }
	s := open(1 << 30)
	s.load(t, list)
	if c := s.Counts(); c.Sent != int64(len(list)) || c.SentBytes != total {
		t.Errorf("%+v", c)
	}
	s = open(1 << 30)
	writing := filepath.Join(folder, "weights", temporary)
	filetest.Write(t, writing+"1", "of a process that was killed")
	filetest.Write(t, writing+"2", "of one that writes")
	if day := time.Now().Add(-24 * time.Hour); os.Chtimes(writing+"1", day, day) != nil {
		t.Fatal("the time of a file cannot be set")
	}
	s = open(1 << 30)
	if left, err := filepath.Glob(writing + "*"); err != nil || len(left) != 1 || left[0] != writing+"2" {
		t.Errorf("%q is left: %v", left, err)
	}
	if err := os.Remove(writing + "2"); err != nil {
		t.Fatal(err)
	}
	s.load(t, list)
	if c := s.Counts(); c.Sent != 0 || c.CachedBytes != total {
		t.Errorf("%+v", c)
	}
	// A damaged file is sent again.
	name := filepath.Join(folder, "weights", s.cache.name(remote.DigestOf(&list[5])))
	for i, change := range []func([]byte) []byte{
		func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		func(b []byte) []byte { return b[:len(b)-1] },
		func(b []byte) []byte { return append(b, 0) },
		func([]byte) []byte { return nil },
	} {
		filetest.Write(t, name, change(filetest.Read(t, name)))
		s = open(1 << 30)
		s.load(t, list)
		if c := s.Counts(); c.Sent != 1 || !strings.Contains(s.log.String(), "it was removed, the leader sends it again") {
			t.Errorf("change %d: %+v, %s", i, c, &s.log)
		}
	}
	// Half of the room: what was not used for the longest time goes, and what is used stays.
	half := s.cache.size / 2
	old := time.Now().Add(-time.Hour)
	for _, f := range s.cache.files {
		if err := os.Chtimes(filepath.Join(folder, "weights", f.name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		s = open(half)
		s.load(t, list)
		if s.cache.size > half || s.cache.size < half/2 {
			t.Errorf("%d bytes are cached, the limit is %d", s.cache.size, half)
		}
		if c := s.Counts(); c.Sent == 0 || c.Cached == 0 || strings.Count(s.log.String(), "raise --cache-size") != 1 {
			t.Errorf("%+v, %s", c, &s.log)
		}
	}
	entries, err := os.ReadDir(filepath.Join(folder, "weights"))
	if err != nil || len(entries) != len(s.cache.files) {
		t.Errorf("%d files, want %d: %v", len(entries), len(s.cache.files), err)
	}
}
