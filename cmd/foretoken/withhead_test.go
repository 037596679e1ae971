package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/models/tiny"
)

// lostFiles are the embedded model as a converter leaves it that drops the head and not the
// config's promise, with a model card.
func lostFiles(t *testing.T, card string) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "lost")
	if o := runIn(t, nil, "mtp", "remove", "--model", "tiny", "--out", dir); o.code != exitOK {
		t.Fatalf("%+v", o)
	}
	files := map[string]string{"README.md": card}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = strings.Replace(string(text), `"mtp_num_hidden_layers": 0`, `"mtp_num_hidden_layers": 1`, 1)
	}
	return files
}

// edited is files with one of them changed.
func edited(files map[string]string, name string, change func(string) string) map[string]string {
	files = maps.Clone(files)
	files[name] = change(files[name])
	return files
}

// TestPullWithHeadFetchesTheHeadOnly gives a model its head back, and runs it.
func TestPullWithHeadFetchesTheHeadOnly(t *testing.T) {
	var mu sync.Mutex
	fetched := map[string]int64{}
	repos := map[string]map[string]string{
		"Org/Tiny": tiny.Files(),
		"Org/Lost": lostFiles(t, "---\nbase_model:\n- Org/Tiny\n---\n"),
	}
	serveHub(t, repos, func(r *http.Request) {
		var first, last int64
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); err == nil {
			mu.Lock()
			defer mu.Unlock()
			fetched[r.URL.Path] += last - first + 1
		}
	})
	o := runIn(t, nil, "pull", "Org/Lost")
	folder := strings.TrimSpace(o.out)
	if want := "the files lack the multi-token-prediction head that config.json declares; to fetch it from Org/Tiny: foretoken pull Org/Lost --with-head\n"; o.code != exitOK || !strings.HasSuffix(o.err, want) {
		t.Fatalf("without the flag: %+v", o)
	}
	clear(fetched)
	o = runIn(t, nil, "pull", "Org/Lost", "--with-head")
	if o.code != exitOK || strings.TrimSpace(o.out) != folder || !strings.Contains(o.err, "\nOrg/Tiny at 0123456789ab: 1 file, 2.4") {
		t.Fatalf("with it: %+v", o)
	}
	head, err := os.Stat(filepath.Join(folder, "mtp.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	shard := "/Org/Tiny/resolve/" + pulledCommit + "/model-00002-of-00002.safetensors"
	if n := fetched[shard]; n == 0 || n > head.Size()+64<<10 || n > int64(len(tiny.Files()["model-00002-of-00002.safetensors"]))/2 {
		t.Errorf("%d bytes of the shard were fetched for a head of %d", n, head.Size())
	}
	want, got := generateJSON(t, with(ids, "--temp", "0", "--max-tokens", "24", "--mtp-depth", "3")...),
		generateJSON(t, with(ids, "--temp", "0", "--max-tokens", "24", "--mtp-depth", "3", "--model", "Org/Lost")...)
	if !slices.Equal(want.TokenIDs, got.TokenIDs) || got.MTP.Accepted != want.MTP.Accepted || got.MTP.Accepted == 0 {
		t.Errorf("%v with %d accepted, want %v with %d", got.TokenIDs, got.MTP.Accepted, want.TokenIDs, want.MTP.Accepted)
	}
	if o = runIn(t, nil, "inspect", "Org/Lost"); o.code != exitOK || !strings.Contains(o.out, "fetched from Org/Tiny@"+pulledCommit) {
		t.Errorf("inspect: %+v", o)
	}
	if o = runIn(t, nil, "list"); !strings.Contains(o.out, "8     yes") {
		t.Errorf("list: %+v", o)
	}
	clear(fetched)
	if o = runIn(t, nil, "pull", "Org/Lost", "--with-head=Org/Tiny@main"); o.code != exitOK || !strings.HasSuffix(o.err, "Org/Lost has a head already, in mtp.safetensors\n") || fetched[shard] > 64<<10 {
		t.Errorf("again: %+v", o)
	}
}

// TestPullWithHeadExplainsMistakes has originals that do not do.
func TestPullWithHeadExplainsMistakes(t *testing.T) {
	lost := lostFiles(t, "---\nbase_model: [Org/Tiny, Org/Other]\n---\n")
	const shard = "model-00002-of-00002.safetensors"
	serveHub(t, map[string]map[string]string{
		"Org/Lost":  lost,
		"Org/Bare":  {"config.json": tiny.Files()["config.json"], "a.gguf": "x"},
		"Org/Llama": {"config.json": `{"model_type": "llama"}`},
		"Org/Cut":   edited(tiny.Files(), shard, func(text string) string { return text[:len(text)-5] }),
		"Org/Long":  edited(tiny.Files(), shard, func(text string) string { return "\xff\xff\xff\xff\x00\x00\x00\x00" + text }),
		"Org/Index": edited(tiny.Files(), "model.safetensors.index.json", func(string) string { return "[" }),
		"Org/Part":  edited(tiny.Files(), shard, func(text string) string { return strings.Replace(text, `mtp.norm.weight"`, `mtq.norm.weight"`, 1) }),
		"Org/Shape": edited(tiny.Files(), shard, func(text string) string {
			return strings.Replace(text, `mtp.norm.weight":{"dtype":"F32","shape":[384]`, `mtp.norm.weight":{"dtype":"F16","shape":[768]`, 1)
		}),
		"Org/Tiny": tiny.Files(),
	}, nil)
	explained(t, []mistake{
		{"pull Org/Lost --with-head", "-", 1, "the model card of Org/Lost names 2 base models, Org/Tiny, Org/Other: name one of them with --with-head=ORG/NAME"},
		{"pull Org/Lost --with-head=../x", "-", 2, "want ORG/NAME"},
		{"pull Org/Lost --with-head=Org/None", "-", 1, "Org/None does not exist"},
		{"pull Org/Bare --with-head", "-", 1, "--with-head: Org/Bare has no safetensors files"},
		{"pull Org/Lost --with-head=Org/Lost", "-", 1, "Org/Lost has no head either: name another repository"},
		{"pull Org/Lost --with-head=Org/Llama", "-", 1, `--with-head: model: config.json: model_type "llama" is not supported`},
		{"pull Org/Lost --with-head=Org/Cut", "-", 1, "it is cut off or damaged"},
		{"pull Org/Lost --with-head=Org/Long", "-", 1, "header of 4294967295 bytes, at most"},
		{"pull Org/Lost --with-head=Org/Index", "-", 1, "Org/Index: checkpoint: model.safetensors.index.json"},
	})
	for repo, says := range map[string]string{
		"Org/Part":  "the head of Org/Part does not fit Org/Lost: it lacks 1 tensor, such as mtp.norm.weight",
		"Org/Shape": "the head of Org/Shape does not fit Org/Lost: weights: checkpoint: mtp.safetensors: tensor \"language_model.mtp.norm.weight\": F16 of shape [768], want 384 numbers",
	} {
		if o := runIn(t, nil, "pull", "Org/Lost", "--with-head="+repo); o.code != exitError || o.out != "" || !strings.Contains(o.err, says) {
			t.Errorf("%s: %+v", repo, o)
		}
	}
	cache, err := hubCache()
	if err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(string(cache), "*", "snapshots", "*", "mtp.safetensors"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v is there, %v", left, err)
	}
	if o := runIn(t, nil, "pull", "Org/Lost", "--with-head=Org/Tiny"); o.code != exitOK {
		t.Errorf("the right one: %+v", o)
	}
}
