package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/models/tiny"
)

// lostFiles are a model as a converter leaves it that drops the head and not the config's promise, with a model card.
func lostFiles(t *testing.T, model, card string) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "lost")
	if o := runIn(t, nil, "mtp", "remove", "--model", model, "--out", dir); o.code != exitOK {
		t.Fatalf("%+v", o)
	}
	files := folderFiles(t, dir)
	files["README.md"] = card
	promise := regexp.MustCompile(`("(?:mtp_num_hidden_layers|num_nextn_predict_layers)": )0`)
	files["config.json"] = promise.ReplaceAllString(files["config.json"], "${1}1")
	return files
}

// folderFiles are the files of a folder.
func folderFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		text := filetest.Read(t, filepath.Join(dir, e.Name()))
		files[e.Name()] = string(text)
	}
	return files
}

// rearranged is a checkpoint as another tool stores it: a number is added to the norms of the head, the head is in a
// file beside the weights, convolutions have the shape of a release, or the file names no format.
type rearranged struct {
	norms                     float32
	beside, released, unnamed bool
}

func (r rearranged) of(t *testing.T, files map[string]string) map[string]string {
	t.Helper()
	c, err := checkpoint.OpenFiles("test", files)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // in memory
	type list struct {
		decls []checkpoint.Decl
		data  [][]byte
	}
	lists := map[string]*list{"model.safetensors": {}, checkpoint.SidecarFile: {}}
	for _, name := range c.Tensors() {
		x, err := c.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		to, isHead := lists["model.safetensors"], strings.Contains(name, "mtp.")
		if isHead && r.beside {
			to = lists[checkpoint.SidecarFile]
		}
		if isHead && strings.Contains(name, "norm") {
			v := make([]float32, x.Shape[0])
			dtype.ToF32(v, x.Type, x.Data)
			for i := range v {
				v[i] += r.norms
			}
			x.Data = make([]byte, len(x.Data))
			dtype.FromF32(x.Data, x.Type, v)
		}
		if strings.HasSuffix(name, "conv1d.weight") && r.released {
			x.Shape = []int{x.Shape[0], 1, x.Shape[1]}
		}
		to.decls, to.data = append(to.decls, checkpoint.Decl{Name: name, Type: x.Type, Shape: x.Shape}), append(to.data, x.Data)
	}
	out := map[string]string{}
	for name, text := range files {
		if !strings.Contains(name, "safetensors") {
			out[name] = text
		}
	}
	for name, l := range lists {
		if len(l.decls) == 0 {
			continue
		}
		metadata := c.Metadata(c.Files()[0])
		if r.unnamed || name == checkpoint.SidecarFile {
			metadata = nil
		}
		out[name] = golden.Tensors(t, l.decls, l.data, metadata)
	}
	return out
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
		"Org/Raw":  rearranged{norms: -1, released: true, unnamed: true}.of(t, tiny.Files()),
		"Org/Lost": lostFiles(t, "tiny", "---\nbase_model:\n- Org/Tiny\n---\n"),
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
	if err := os.Remove(filepath.Join(folder, "mtp.safetensors")); err != nil {
		t.Fatal(err)
	}
	if o = runIn(t, nil, "pull", "Org/Lost", "--with-head=Org/Raw"); o.code != exitOK {
		t.Fatalf("from a release: %+v", o)
	}
	raw := generateJSON(t, with(ids, "--temp", "0", "--max-tokens", "24", "--mtp-depth", "3", "--model", "Org/Lost")...)
	if !slices.Equal(want.TokenIDs, raw.TokenIDs) || raw.MTP.Accepted != want.MTP.Accepted {
		t.Errorf("from a release: %v with %d accepted, want %v with %d", raw.TokenIDs, raw.MTP.Accepted, want.TokenIDs, want.MTP.Accepted)
	}
	if o = runIn(t, nil, "inspect", "Org/Lost"); o.code != exitOK || !strings.Contains(o.out, "fetched from Org/Raw@"+pulledCommit) {
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

// TestPullWithHeadKeepsTheHead fetches heads as tools store them, for models that were converted: each is the head that the
// original has, with the same effective norms, whatever their numbers: converted models are equal.
func TestPullWithHeadKeepsTheHead(t *testing.T) {
	mlx := filepath.Join(t.TempDir(), "mlx")
	if o := runIn(t, nil, "convert", "--model", golden.Dir(t, "dense"), "--out", mlx); o.code != exitOK {
		t.Fatalf("%+v", o)
	}
	release, converted := folderFiles(t, golden.Dir(t, "dense")), folderFiles(t, mlx)
	originals := map[string]map[string]string{
		"Org/Release":  rearranged{norms: 1}.of(t, release),    // by their numbers they would be converted
		"Org/Mlx":      rearranged{norms: -1}.of(t, converted), // and these raw
		"Org/Unnamed":  rearranged{norms: -1, unnamed: true}.of(t, converted),
		"Org/RawSide":  rearranged{norms: -1, beside: true}.of(t, converted),
		"Org/MlxSide":  rearranged{norms: 1, beside: true}.of(t, release),
		"Org/Lite":     folderFiles(t, golden.Dir(t, "glm4_moe_lite")),
		"Org/GLM":      folderFiles(t, golden.Dir(t, "glm4_moe")),
		"Org/DeepSeek": folderFiles(t, golden.Dir(t, "deepseek_v3")),
	}
	of := map[string]string{"Org/Lite": "glm4_moe_lite", "Org/GLM": "glm4_moe", "Org/DeepSeek": "deepseek_v3"}
	repos := map[string]map[string]string{}
	for name, files := range originals {
		repos[name] = files
		repos[name+"Lost"] = lostFiles(t, golden.Dir(t, cmp.Or(of[name], "dense")), "---\nbase_model: "+name+"\n---\n")
	}
	serveHub(t, repos, nil)
	for name, files := range originals {
		dir := filetest.Folder(t, files)
		if o := runIn(t, nil, "pull", name+"Lost", "--with-head"); o.code != exitOK {
			t.Errorf("%s: %+v", name, o)
			continue
		}
		var whole [2]map[string]string
		for i, model := range []string{dir, name + "Lost"} {
			out := filepath.Join(t.TempDir(), "whole")
			if o := runIn(t, nil, "convert", "--model", model, "--out", out); o.code != exitOK {
				t.Fatalf("%s: %+v", name, o)
			}
			whole[i] = folderFiles(t, out)
		}
		if whole[0]["model.safetensors"] != whole[1]["model.safetensors"] {
			t.Errorf("%s: the model with the fetched head is another one", name)
		}
	}
}

// TestPullWithHeadExplainsMistakes has originals that do not do.
func TestPullWithHeadExplainsMistakes(t *testing.T) {
	lost := lostFiles(t, "tiny", "---\nbase_model: [Org/Tiny, Org/Other]\n---\n")
	const shard = "model-00002-of-00002.safetensors"
	moved := maps.Clone(tiny.Files())
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
		"Org/Tiny":  tiny.Files(),
		"Org/Dense": folderFiles(t, golden.Dir(t, "dense")),
		"Org/Whole": tiny.Files(),
		"Org/Moved": moved,
	}, func(r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/Org/Whole/") {
			r.Header.Del("Range") // a mirror that knows no ranges
		}
		if strings.HasPrefix(r.URL.Path, "/Org/Moved/") && strings.HasSuffix(r.URL.Path, ".json") {
			moved[shard] = tiny.Files()[shard] + "and more"
		}
	})
	explained(t, []mistake{
		{"pull Org/Lost --with-head", "-", 1, "the model card of Org/Lost names 2 base models, Org/Tiny, Org/Other: name one of them with --with-head=ORG/NAME"},
		{"pull Org/Lost --with-head=../x", "-", 2, "want ORG/NAME"},
		{"pull Org/Lost --with-head=Org/None", "-", 1, "Org/None does not exist"},
		{"pull Org/Bare --with-head", "-", 1, "--with-head: Org/Bare has no safetensors files"},
		{"pull Org/Lost --with-head=Org/Lost", "-", 1, "Org/Lost has no head either: name another repository"},
		{"pull Org/Lost --with-head=Org/Llama", "-", 1, `--with-head: model: config.json: model_type "llama" is not supported`},
		{"pull Org/Lost --with-head=Org/Cut", "-", 1, "it is cut off or damaged"},
		{"pull Org/Lost --with-head=Org/Long", "-", 1, "header of 4294967295 bytes, at most"},
		{"pull Org/Lost --with-head=Org/Tiny@v9", "-", 1, `Org/Tiny has no revision "v9"`},
		{"pull Org/Lost --with-head=Org/Whole", "-", 1, "answers 200 OK instead of the requested part of the file: use another HF_ENDPOINT"},
		{"pull Org/Lost --with-head=Org/Moved", "-", 1, "the server sends \"bytes 0-7/"},
		{"pull Org/Lost --with-head=Org/Index", "-", 1, "Org/Index: checkpoint: model.safetensors.index.json"},
	})
	for repo, says := range map[string]string{
		"Org/Part":  "the head of Org/Part does not fit Org/Lost: it lacks 1 tensor, such as mtp.norm.weight",
		"Org/Dense": "the head of Org/Dense does not fit Org/Lost: weights: checkpoint: mtp.safetensors: tensor \"mtp.",
		"Org/Shape": "the head of Org/Shape does not fit Org/Lost: weights: checkpoint: mtp.safetensors: tensor \"language_model.mtp.norm.weight\": F16 of shape [768], want 384 numbers",
	} {
		if o := runIn(t, nil, "pull", "Org/Lost", "--with-head="+repo); o.code != exitError || o.out != "" || !strings.Contains(o.err, says) {
			t.Errorf("%s: %+v", repo, o)
		}
	}
	cache, err := load.HubCache()
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
