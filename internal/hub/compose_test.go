package hub

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// composition is parts of two files of the fake hub, and the bytes that they make.
func composition(t *testing.T, h *fakeHub, l *Listing) (*Composition, []byte) {
	t.Helper()
	large, small := only(t, l, "model.safetensors")[0], only(t, l, "tokenizer.json")[0]
	m := &Composition{From: l, Text: []byte("the origin is " + string(l.Repo)), Pieces: []Piece{
		{large, 100, 2500}, {small, 7, 14}, {large, 0, 10}, {large, large.Size - 1, 1},
	}}
	want := slices.Clone(m.Text)
	for _, p := range m.Pieces {
		want = append(want, h.files[p.File.Path][p.Offset:p.Offset+p.Size]...)
	}
	return m, want
}

// composed is the file in the snapshot.
func composed(c *Client) string {
	return filepath.Join(root(c), "snapshots", testCommit, "mtp.safetensors")
}

func TestComposeRequestsPiecesOnly(t *testing.T) {
	files := someFiles()
	delete(files, "mtp.safetensors")
	h := newFakeHub(t, files)
	c, _ := h.client(t)
	l := list(t, c)
	if _, err := c.Fetch(t.Context(), l, only(t, l, "config.json"), nil); err != nil {
		t.Fatal(err)
	}
	m, want := composition(t, h, l)
	h.set(nil)
	var last Event
	if err := c.Compose(t.Context(), m, l, "mtp.safetensors", func(e Event) { last = e }); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(composed(c)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want %d: %v", len(got), len(want), err)
	}
	if last.State != Finished || last.Done != int64(len(want)) || last.File.Path != "mtp.safetensors" || last.File.Size != last.Done {
		t.Errorf("the last event is %+v", last)
	}
	store := "store GET /" + h.hashes["model.safetensors"] + " bytes="
	for _, span := range []string{"100-1099", "1100-2099", "2100-2599", "0-9", "7499-7499"} {
		if h.count(store+span) != 1 {
			t.Errorf("%s was requested %d times", span, h.count(store+span))
		}
	}
	if n := h.count(store); n != 5 {
		t.Errorf("%d requests for parts, want 5: %v", n, h.seen())
	}
	// Removing the model removes the file, and another snapshot would share it.
	target, err := os.Readlink(composed(c))
	if err != nil || !strings.HasPrefix(target, "../../blobs/") {
		t.Errorf("the file leads to %s, %v", target, err)
	}
	h.set(nil)
	if err := errors.Join(os.Remove(composed(c)), c.Compose(t.Context(), m, l, "mtp.safetensors", nil)); err != nil || len(h.seen()) > 0 || !hasSize(composed(c), int64(len(want))) {
		t.Errorf("composing what is there: %v, %v", err, h.seen())
	}
	if err := c.cache.RemoveAll(testRepo); err != nil || hasSize(composed(c), int64(len(want))) {
		t.Errorf("after removal: %v", err)
	}
}

func TestComposeGoesOnFromWhatIsThere(t *testing.T) {
	files := someFiles()
	delete(files, "mtp.safetensors")
	h := newFakeHub(t, files)
	c, _ := h.client(t)
	l := list(t, c)
	if _, err := c.Fetch(t.Context(), l, only(t, l, "config.json"), nil); err != nil {
		t.Fatal(err)
	}
	m, want := composition(t, h, l)
	ctx, cancel := context.WithCancel(t.Context())
	h.set(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") != "bytes=1100-2099" {
			return false
		}
		cancel()
		<-r.Context().Done()
		return true
	})
	if err := c.Compose(ctx, m, l, "mtp.safetensors", nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	if _, err := os.Lstat(composed(c)); err == nil {
		t.Error("an unfinished file is in the snapshot")
	}
	left, err := filepath.Glob(filepath.Join(root(c), "blobs", "*"+partialSuffix))
	if err != nil || len(left) != 1 {
		t.Fatalf("left over: %v, %v", left, err)
	}
	part, err := os.ReadFile(left[0])
	if err != nil || !bytes.HasPrefix(want, part) || len(part) < len(m.Text) {
		t.Errorf("what has arrived, %d bytes, is no prefix: %v", len(part), err)
	}
	h.set(nil)
	if err := c.Compose(t.Context(), m, l, "mtp.safetensors", nil); err != nil {
		t.Fatal(err)
	}
	if n := h.count("store GET /" + h.hashes["model.safetensors"] + " bytes=100-"); n > 0 && len(part) > len(m.Text) {
		t.Error("what was there was requested again")
	}
	if got, err := os.ReadFile(composed(c)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want %d: %v", len(got), len(want), err)
	}
}

func TestComposeRefusesLies(t *testing.T) {
	h := newFakeHub(t, someFiles())
	c, _ := h.client(t)
	l := list(t, c)
	if _, err := c.Fetch(t.Context(), l, only(t, l, "config.json"), nil); err != nil {
		t.Fatal(err)
	}
	m, _ := composition(t, h, l)
	for name, fault := range map[string]struct {
		answer func(w http.ResponseWriter)
		says   string
	}{
		"all of the file": {func(w http.ResponseWriter) { _, _ = w.Write(h.files["model.safetensors"]) }, "instead of the requested part"},
		"another part": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Range", "bytes 0-999/7500")
			w.WriteHeader(http.StatusPartialContent)
		}, `want "bytes 100-1099/7500"`},
		"another file": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Range", "bytes 100-1099/9999")
			w.WriteHeader(http.StatusPartialContent)
		}, "9999"},
	} {
		h.set(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get("Range") != "bytes=100-1099" {
				return false
			}
			fault.answer(w)
			return true
		})
		if err := c.Compose(t.Context(), m, l, "head", nil); err == nil || !strings.Contains(err.Error(), fault.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h.set(nil)
	file := only(t, l, "model.safetensors")[0]
	for _, p := range []Piece{{file, -1, 2}, {file, 0, -1}, {file, 7400, 101}, {file, 1 << 62, 1 << 62}} {
		if _, err := c.ReadPiece(t.Context(), l, p); err == nil || !strings.Contains(err.Error(), "model.safetensors has 7500 bytes: a range of") {
			t.Errorf("%v: %v", p, err)
		}
		if err := c.Compose(t.Context(), &Composition{From: l, Pieces: []Piece{p}}, l, "head", nil); err == nil {
			t.Errorf("%v is composed", p)
		}
	}
	if len(h.seen()) > 0 {
		t.Errorf("requests %v", h.seen())
	}
}

func TestBaseModelsOfACard(t *testing.T) {
	for card, want := range map[string][]Repo{
		"---\nlicense: mit\nbase_model: Qwen/Qwen3.8-27B\ntags:\n- mlx\n---\n# X":                  {"Qwen/Qwen3.8-27B"},
		"---\nbase_model:\n- a/b\n  - \"c/d\" # the second\n- a/b\ntags:\n- e/f\n---\n":            {"a/b", "c/d"},
		"\ufeff---\r\nbase_model: ['a/b', c/d]\r\nbase_model_relation: quantized\r\n---\r\n":       {"a/b", "c/d"},
		"---\nbase_model: ../../etc\n---\n":                                                        nil,
		"---\nbase_model: a/b\n":                                                                   nil,
		"# base_model: a/b\n":                                                                      nil,
		"---\nbase_model_relation: a/b\ntags:\n- c/d\nx:\n  base_model: e/f\n---\nbase_model: g/h": nil,
		"": nil,
	} {
		if got := BaseModels([]byte(card)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", card, got, want)
		}
	}
}

// FuzzBaseModels: for any card, the names are valid repositories.
func FuzzBaseModels(f *testing.F) {
	f.Add([]byte("---\nbase_model: Qwen/Qwen3.8-27B\n---\n"))
	f.Add([]byte("---\nbase_model:\n- a/b\n- 'c/d'\n---"))
	f.Add([]byte("---\nbase_model: [a/b, c/d]\n---\n"))
	f.Fuzz(func(t *testing.T, card []byte) {
		for _, r := range BaseModels(card) {
			if again, revision, err := ParseName(string(r)); again != r || revision != "" || err != nil {
				t.Errorf("%q: %q, %v", card, r, err)
			}
		}
	})
}
