package hub

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/filetest"
)

// The commits of the cache that officialCache writes.
const (
	oldCommit = "1111111111111111111111111111111111111111"
	newCommit = "2222222222222222222222222222222222222222"
)

// officialCache is a cache as the hub's own client leaves it: two revisions that share a
// blob, downloads that were interrupted, notes on files that do not exist, a data set, and
// a repository of which only a ref came.
func officialCache(t *testing.T) Cache {
	t.Helper()
	dir := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, filepath.FromSlash(path))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	link := func(path, target string) {
		t.Helper()
		path = filepath.Join(dir, filepath.FromSlash(path))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.Symlink(target, path)); err != nil {
			t.Fatal(err)
		}
	}
	const model = "models--Qwen--Qwen3.5-4B/"
	write("CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n")
	write("version.txt", "1")
	write(".locks/models--Qwen--Qwen3.5-4B/aa.lock", "")
	write(model+"refs/main", newCommit)
	write(model+"refs/refs/pr/1", oldCommit)
	write(model+".no_exist/"+newCommit+"/adapter_config.json", "")
	write(model+"blobs/aa", "{}")
	write(model+"blobs/bb", "old weights")
	write(model+"blobs/cc", "the new weights")
	write(model+"blobs/dd.0a1b2c3d.incomplete", "half")
	link(model+"snapshots/"+oldCommit+"/config.json", "../../blobs/aa")
	link(model+"snapshots/"+oldCommit+"/model.safetensors", "../../blobs/bb")
	link(model+"snapshots/"+newCommit+"/config.json", "../../blobs/aa")
	link(model+"snapshots/"+newCommit+"/mtp/weights.safetensors", "../../../blobs/cc")
	link(model+"snapshots/"+newCommit+"/gone.safetensors", "../../blobs/ff")
	write("models--mlx-community--Qwen3.5-4B/snapshots/"+oldCommit+"/config.json", "{} without links")
	write("models--gpt2/refs/main", newCommit)
	write("datasets--Org--Data/refs/main", newCommit)
	write("models--a--b--c/refs/main", newCommit)
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, model, "blobs", "bb"), long, long); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, model, "blobs", "aa"), long, long); err != nil {
		t.Fatal(err)
	}
	return Cache(dir)
}

func TestCacheOfTheHubsOwnClientIsRead(t *testing.T) {
	c := officialCache(t)
	repos, err := c.Repos()
	if err != nil || !slices.Equal(repos, []Repo{"Qwen/Qwen3.5-4B", "gpt2", "mlx-community/Qwen3.5-4B"}) {
		t.Errorf("repositories %v, %v", repos, err)
	}
	m, err := c.Model("Qwen/Qwen3.5-4B")
	if err != nil {
		t.Fatal(err)
	}
	if m.Size != 2+11+15+4 || m.Unfinished != 4 || len(m.Snapshots) != 2 {
		t.Fatalf("%+v", m)
	}
	s := m.Snapshots[0]
	if s.Commit != newCommit || s.Size != 17 || !slices.Equal(s.Refs, []string{"main"}) || !slices.Equal(s.Files, []string{"config.json", "mtp/weights.safetensors"}) {
		t.Errorf("the newest is %+v", s)
	}
	if m, err = c.Model("mlx-community/Qwen3.5-4B"); err != nil || m.Size != 16 {
		t.Errorf("without links: %+v, %v", m, err)
	}
	if repos, err := Cache(filepath.Join(string(c), "nowhere")).Repos(); err != nil || repos != nil {
		t.Errorf("a cache that is not there: %v, %v", repos, err)
	}
}

func TestFindKnowsTheNamesOfAModel(t *testing.T) {
	c := officialCache(t)
	for name, want := range map[string]string{
		"Qwen/Qwen3.5-4B":              newCommit,
		"qwen/qwen3.5-4b":              newCommit,
		"Qwen/Qwen3.5-4B@main":         newCommit,
		"Qwen/Qwen3.5-4B@refs/pr/1":    oldCommit,
		"Qwen/Qwen3.5-4B@1111111":      oldCommit,
		"Qwen/Qwen3.5-4B@" + oldCommit: oldCommit,
		"mlx-community/Qwen3.5-4B":     oldCommit, // of which no branch is known
	} {
		if s, err := c.Find(name); err != nil || s.Commit != want || !strings.EqualFold(string(s.Repo), strings.Split(name, "@")[0]) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	for name, says := range map[string]string{
		"Qwen3.5-4B":          "is ambiguous, it matches Qwen/Qwen3.5-4B, mlx-community/Qwen3.5-4B: give the full name",
		"Qwen/Qwen3.5-9B":     "Qwen/Qwen3.5-9B is not in the cache",
		"Qwen/Qwen3.5-4B@v2":  `revision "v2" of Qwen/Qwen3.5-4B is not in the cache; cached revisions: main, 222222222222, refs/pr/1, 111111111111`,
		"Qwen/Qwen3.5-4B@111": "is not in the cache",
		"gpt2":                "gpt2 has not been downloaded yet",
		"a/b/c":               "want ORG/NAME",
		"../models--gpt2":     "want ORG/NAME",
	} {
		_, err := c.Find(name)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", name, err, says)
		}
		if strings.Contains(says, "not") && !errors.Is(err, ErrNotCached) {
			t.Errorf("%s: %v is not ErrNotCached", name, err)
		}
	}
	if err := c.RemoveAll("mlx-community/Qwen3.5-4B"); err != nil {
		t.Fatal(err)
	}
	if s, err := c.Find("Qwen3.5-4B"); err != nil || s.Repo != "Qwen/Qwen3.5-4B" {
		t.Errorf("a name that only one has: %+v, %v", s, err)
	}
}

func TestRemoveKeepsWhatOthersNeed(t *testing.T) {
	c := officialCache(t)
	s, err := c.Find("Qwen/Qwen3.5-4B@refs/pr/1")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(s); err != nil {
		t.Fatal(err)
	}
	m, err := c.Model(s.Repo)
	if err != nil || len(m.Snapshots) != 1 || m.Size != 2+15+4 || m.Snapshots[0].Size != 17 {
		t.Errorf("after the old revision: %+v, %v", m, err)
	}
	if _, err := os.Stat(filepath.Join(m.Folder, "refs", "refs", "pr", "1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its ref is still there: %v", err)
	}
	if err := c.Remove(s); !errors.Is(err, ErrNotCached) {
		t.Errorf("twice: %v", err)
	}
	if err := c.Remove(&m.Snapshots[0]); err != nil {
		t.Fatal(err)
	}
	if err := c.RemoveAll(m.Repo); !errors.Is(err, ErrNotCached) {
		t.Errorf("after the last revision the repository: %v", err)
	}
	if err := c.RemoveAll("gpt2"); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(filepath.Join(string(c), locksFolder))
	if err != nil || len(left) > 0 {
		t.Errorf("locks are left: %v, %v", left, err)
	}
	if repos, err := c.Repos(); err != nil || len(repos) != 1 {
		t.Errorf("left: %v, %v", repos, err)
	}
}

// A link that leads out of the repository is removed; its target is not.
func TestRemoveStaysInside(t *testing.T) {
	c := officialCache(t)
	outside := filetest.Write(t, filepath.Join(t.TempDir(), "precious"), "x")
	m, err := c.Model("Qwen/Qwen3.5-4B")
	if err == nil {
		err = errors.Join(os.Symlink(outside, filepath.Join(m.Snapshots[0].Folder, "a")), os.Symlink(filepath.Dir(outside), filepath.Join(m.Snapshots[0].Folder, "b")))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, revision := range []string{newCommit, oldCommit} {
		s, err := c.Find("Qwen/Qwen3.5-4B@" + revision)
		if err == nil {
			err = c.Remove(s)
		}
		if err != nil || !hasSize(outside, 1) {
			t.Errorf("%s: %v; what is outside is there: %v", revision, err, hasSize(outside, 1))
		}
	}
}

func TestSnapshotPathIsWhatToOpen(t *testing.T) {
	folder := filepath.FromSlash("/c")
	for name, c := range map[string]struct {
		files      []string
		want, says string
	}{
		"safetensors": {[]string{"config.json", "model.safetensors", "x-Q8_0.gguf"}, folder, ""},
		"head only":   {[]string{"mtp/weights.safetensors"}, folder, ""},
		"gguf":        {[]string{"config.json", "mmproj-F16.gguf", "q/x.gguf"}, filepath.Join(folder, "q", "x.gguf"), ""},
		"parts":       {[]string{"x-00001-of-00002.gguf", "x-00002-of-00002.gguf"}, filepath.Join(folder, "x-00001-of-00002.gguf"), ""},
		"several":     {[]string{"a.gguf", "b.gguf"}, "", "has several models: give the file of one:\n  " + filepath.Join(folder, "a.gguf")},
		"a folder":    {[]string{"README.md", "4bit/config.json", "4bit/model.safetensors"}, filepath.Join(folder, "4bit"), ""},
		"folders":     {[]string{"4bit/config.json", "4bit/model.safetensors", "8bit/config.json", "8bit/model.safetensors"}, "", "has several models: give the file of one:\n  " + filepath.Join(folder, "4bit")},
		"an index":    {[]string{"model.safetensors.index.json"}, "", "the weights of a/b are not in the cache"},
		"none":        {[]string{"config.json"}, "", "the weights of a/b are not in the cache"},
	} {
		s := Snapshot{Repo: "a/b", Folder: folder, Files: c.files}
		path, err := s.Path()
		if path != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q, %v", name, path, err)
		}
	}
}
