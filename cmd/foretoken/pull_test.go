package main

import (
	"context"
	"crypto/sha1"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/models/tiny"
)

const pulledCommit = "0123456789abcdef0123456789abcdef01234567"

// gitHash is git's name of a file's contents.
func gitHash(text string) string {
	return fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(text), text)))
}

// serveHub starts a hub with the repositories, and sets it and an empty cache
// in the environment. before, if not nil, is called with every request for a part of a file.
func serveHub(t *testing.T, repos map[string]map[string]string, before func(r *http.Request)) {
	t.Helper()
	var hashes sync.Map // of texts
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for repo, files := range repos {
			if r.URL.Path == "/api/models/"+repo+"/revision/main" {
				_, _ = io.WriteString(w, `{"sha":"`+pulledCommit+`"}`)
				return
			}
			if r.URL.Path == "/api/models/"+repo+"/tree/"+pulledCommit {
				var list []map[string]any
				for path, text := range files {
					hash, ok := hashes.Load(text)
					if !ok {
						hash, _ = hashes.LoadOrStore(text, gitHash(text))
					}
					list = append(list, map[string]any{"type": "file", "path": path, "size": len(text), "oid": hash})
				}
				_ = json.NewEncoder(w).Encode(list)
				return
			}
			if strings.HasPrefix(r.URL.Path, "/api/models/"+repo+"/revision/") {
				w.Header().Set("X-Error-Code", "RevisionNotFound")
				http.NotFound(w, r)
				return
			}
			name, ok := strings.CutPrefix(r.URL.Path, "/"+repo+"/resolve/"+pulledCommit+"/")
			if text, listed := files[name]; ok && listed {
				if before != nil && r.Method == http.MethodGet {
					before(r)
				}
				http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
				return
			}
		}
		w.Header().Set("X-Error-Code", "RepoNotFound")
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	hubEnvironment(t, server.URL)
}

// hubEnvironment makes the environment that of a user with an empty cache.
func hubEnvironment(t *testing.T, endpoint string) (cache string) {
	t.Helper()
	for _, name := range []string{"HF_HOME", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("HF_ENDPOINT", endpoint)
	t.Setenv("NO_PROXY", "*")
	cache = filepath.Join(t.TempDir(), "hub")
	t.Setenv("HF_HUB_CACHE", cache)
	return cache
}

// The whole way: fetch a model, see it, run it by each of its names, remove it.
func TestPulledModelRunsAsTheOriginal(t *testing.T) {
	serveHub(t, map[string]map[string]string{"Org/Tiny": tiny.Files()}, nil)
	o := runIn(t, nil, "pull", "Org/Tiny")
	folder := strings.TrimSuffix(o.out, "\n")
	if o.code != exitOK || filepath.Base(folder) != pulledCommit {
		t.Fatalf("pull: %+v", o)
	}
	if !strings.HasPrefix(o.err, "Org/Tiny at 0123456789ab: 11 files, "+console.ByteText(tinySize())+"\n") || !strings.HasSuffix(o.err, "100 %, "+console.ByteText(tinySize())+" of "+console.ByteText(tinySize())+"\n") ||
		!strings.Contains(o.err, "\nconfig.json, ") {
		t.Errorf("pull says %q", o.err)
	}
	o = runIn(t, nil, "list")
	if want := regexp.MustCompile(`^MODEL +SIZE +REVISION +FAMILY +BITS +HEAD +VISION +DRAFTER +\nOrg/Tiny +[\d.]+ MB +main 0123456 +qwen3_5 +8 +yes +yes +no +\n$`); o.code != exitOK || !want.MatchString(o.out) {
		t.Errorf("list: %+v", o)
	}
	for _, name := range []string{"Org/Tiny", "tIny", "Org/Tiny@main", "Tiny@0123456", folder} {
		if path, err := load.Resolve(name); err != nil || path != folder {
			t.Errorf("--model %s is %s, %v", name, path, err)
		}
	}
	few := with(ids, "--temp", "0", "--max-tokens", "2", "--mtp=off")
	want, got := generateJSON(t, few...), generateJSON(t, with(few, "--model", "Org/Tiny")...)
	if got.LogitsHash != want.LogitsHash || !slices.Equal(got.TokenIDs, want.TokenIDs) {
		t.Errorf("--model Org/Tiny: %v %s, want %v %s", got.TokenIDs, got.LogitsHash, want.TokenIDs, want.LogitsHash)
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	if o = runIn(t, nil, "pull", "Org/Tiny"); o.code != exitOK || o.out != folder+"\n" {
		t.Errorf("offline: %+v", o)
	}
	if o = runIn(t, nil, "__complete", "run", "--model", "O"); !strings.HasPrefix(o.out, "Org/Tiny\n:0\n") {
		t.Errorf("completion of --model: %q", o.out)
	}
	if o = runIn(t, nil, "__complete", "rm", ""); !strings.HasPrefix(o.out, "Org/Tiny\n:4\n") {
		t.Errorf("completion of rm: %q", o.out)
	}
	if o = runIn(t, nil, "rm", "Tiny"); o.code != exitUsage || !strings.Contains(o.err, "add --yes") {
		t.Errorf("rm without a terminal: %+v", o)
	}
	if o = runIn(t, nil, "rm", "Tiny", "--yes"); o.code != exitOK || o.out != fmt.Sprintf("removed Org/Tiny, %s: %[1]s freed\n", console.ByteText(tinySize())) {
		t.Errorf("rm: %+v", o)
	}
	if o = runIn(t, nil, "list"); o.out != "" || !strings.Contains(o.err, "no models in ") {
		t.Errorf("list of nothing: %+v", o)
	}
	if o = runIn(t, nil, "list", "--json"); o.out != "[]\n" {
		t.Errorf("list of nothing: %+v", o)
	}
}

func tinySize() int64 {
	n := 0
	for name, text := range tiny.Files() {
		if name != "README.md" {
			n += len(text)
		}
	}
	return int64(n)
}

func TestPullGoesOnAfterCtrlC(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var gets atomic.Int32
	files := map[string]string{"config.json": `{"model_type":"qwen3_5"}`, "model.safetensors": strings.Repeat("x", 20<<20)}
	serveHub(t, map[string]map[string]string{"Org/Big": files}, func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "model.safetensors") && gets.Add(1) == 2 {
			cancel()
			<-r.Context().Done()
		}
	})
	root := newRootCommand()
	root.SetArgs([]string{"pull", "Org/Big", "--parallel", "1"})
	var out, stderr strings.Builder
	root.SetOut(&out)
	root.SetErr(&stderr)
	if code := execute(ctx, root, &stderr); code != exitInterrupted || out.Len() > 0 || !strings.Contains(stderr.String(), "run the same command to resume") {
		t.Fatalf("interrupted: exit code %d, %q, %q", code, &out, &stderr)
	}
	gets.Store(10)
	if o := runIn(t, nil, "pull", "Org/Big"); o.code != exitOK || !strings.HasSuffix(o.err, "100 %, 21 MB of 21 MB\n") {
		t.Errorf("again: %+v", o)
	}
	if n := gets.Load(); n != 11 {
		t.Errorf("%d parts were fetched after the first of two had arrived", n-10)
	}
}

func TestPullRefusesOtherFamilies(t *testing.T) {
	files := map[string]string{"config.json": `{"model_type":"llama"}`, "model.safetensors": "weights"}
	var weights atomic.Int32
	serveHub(t, map[string]map[string]string{"Org/Llama": files}, func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".safetensors") {
			weights.Add(1)
		}
	})
	o := runIn(t, nil, "pull", "Org/Llama")
	if o.code != exitError || !strings.Contains(o.err, `Org/Llama is a model of type "llama", which is not supported; supported: deepseek_v3`) || weights.Load() > 0 {
		t.Errorf("%+v; weights asked for %d times", o, weights.Load())
	}
	if o = runIn(t, nil, "pull", "Org/Llama", "--force"); o.code != exitOK {
		t.Errorf("--force: %+v", o)
	}
	if o = runIn(t, nil, "list"); o.out != "Not supported: Org/Llama (llama)\n" {
		t.Errorf("list: %+v", o)
	}
	var list []struct {
		Family, Problem string
		Supported       bool
		Bytes           int64
	}
	o = runIn(t, nil, "list", "--json")
	if err := json.Unmarshal([]byte(o.out), &list); err != nil || len(list) != 1 || list[0].Supported || list[0].Family != "llama" || list[0].Problem == "" || list[0].Bytes != 29 {
		t.Errorf("list --json: %s, %v", o.out, err)
	}
}

func TestPullChoosesAmongFiles(t *testing.T) {
	files := map[string]string{"a-Q4_K_M.gguf": "four", "a-Q8_0.gguf": "eight bits", "README.md": "#"}
	serveHub(t, map[string]map[string]string{"Org/GGUF": files}, nil)
	o := runIn(t, nil, "pull", "Org/GGUF")
	if o.code != exitError || !strings.Contains(o.err, "Org/GGUF has 2 GGUF models: choose one") {
		t.Errorf("%+v", o)
	}
	o = runIn(t, nil, "pull", "Org/GGUF", "--include", "*Q8*", "--revision", "main")
	folder := strings.TrimSpace(o.out)
	if path, err := load.Resolve("Org/GGUF"); err != nil || path != filepath.Join(folder, "a-Q8_0.gguf") {
		t.Errorf("%+v: --model Org/GGUF is %s, %v", o, path, err)
	}
	if o = runIn(t, nil, "pull", "Org/GGUF", "--exclude", "*Q8*"); o.code != exitOK {
		t.Errorf("%+v", o)
	}
	if _, err := load.Resolve("Org/GGUF"); err == nil || !strings.Contains(err.Error(), "has several models: give the file of one:\n  "+filepath.Join(folder, "a-Q4_K_M.gguf")) {
		t.Errorf("two files: %v", err)
	}
}

// TestPullFetchesTheSmallestSet leaves out files of other variants, and runs a model in a folder.
func TestPullFetchesTheSmallestSet(t *testing.T) {
	more, inside := maps.Clone(tiny.Files()), map[string]string{"README.md": "#"}
	more["consolidated.safetensors"], more["model.safetensors"], more["hf_quant_config.json"] = "x", "x", "{}"
	for name, text := range tiny.Files() {
		inside["4bit/"+name] = text
	}
	serveHub(t, map[string]map[string]string{"Org/More": more, "Org/Inside": inside}, nil)
	o := runIn(t, nil, "pull", "Org/More")
	if o.code != exitOK || strings.Contains(o.err, "consolidated") || strings.Contains(o.err, "\nmodel.safetensors,") || !strings.Contains(o.err, "hf_quant_config.json") {
		t.Errorf("%+v", o)
	}
	o = runIn(t, nil, "pull", "Org/Inside")
	folder := strings.TrimSpace(o.out)
	if o.code != exitOK || filepath.Base(folder) != "4bit" {
		t.Errorf("%+v", o)
	}
	if path, err := load.Resolve("Org/Inside"); err != nil || path != folder {
		t.Errorf("--model Org/Inside is %s, %v", path, err)
	}
	if o = runIn(t, nil, "list"); strings.Count(o.out, "qwen3_5") != 2 || strings.Contains(o.out, "incomplete") {
		t.Errorf("list: %+v", o)
	}
}

// TestPulledDrafterIsUsed pulls a model and its drafter, which the model is then used with.
func TestPulledDrafterIsUsed(t *testing.T) {
	drafter := folderFiles(t, golden.TinyDrafter(t).Dir)
	drafter["README.md"] = "---\nbase_model: Org/Tiny\n---\n"
	serveHub(t, map[string]map[string]string{"Org/Tiny": tiny.Files(), "Other/Tiny-DSpark": drafter}, nil)
	o := runIn(t, nil, "pull", "Other/Tiny-DSpark")
	if o.code != exitOK || !strings.Contains(o.err, "DSpark drafter for Org/Tiny, hidden size 384, 8 layers; use it with --model Org/Tiny --drafter Other/Tiny-DSpark\n") {
		t.Errorf("pull: %+v", o)
	}
	if o = runIn(t, nil, "inspect", "Other/Tiny-DSpark"); o.code != exitOK || !strings.Contains(o.out, "fits        models with hidden size 384, vocabulary 8256, 8 layers\n") {
		t.Errorf("inspect: %+v", o)
	}
	if o = runIn(t, nil, "pull", "Org/Tiny"); o.code != exitOK || strings.Contains(o.err, "drafter") {
		t.Errorf("pull: %+v", o)
	}
	words := func(line string) string { return strings.Join(strings.Fields(line), " ") }
	if o = runIn(t, nil, "list"); !strings.Contains(words(o.out), "qwen3_5 8 yes yes Other/Tiny-DSpark") || !strings.Contains(words(o.out), "DSpark 8 - - for hidden size 384, 8 layers") {
		t.Errorf("list: %+v", o)
	}
	for flag, used := range map[string]bool{"": true, "--drafter Tiny-DSpark": true, "--drafter off": false, "--draft mtp": false, "--draft block": true, "--mtp=off": false} {
		o := runIn(t, nil, slices.Concat([]string{"generate", "--verbose", "--no-self-test", "--model", "Org/Tiny", "--max-tokens", "2"}, strings.Fields(flag), ids)...)
		if o.code != exitOK || strings.Contains(o.err, "DSpark drafter of") != used {
			t.Errorf("%q: %+v", flag, o)
		}
	}
	if o = runIn(t, nil, "inspect", "Org/Tiny", "--gpu-memory", "1GB"); o.code != exitOK || !strings.Contains(words(o.out), "drafter DSpark: ") || !strings.Contains(words(o.out), "weights 29.7 MB") || !strings.Contains(words(o.out), "head and drafter 21.5 MB") {
		t.Errorf("inspect: %+v", o)
	}
}

func TestPullMistakesAreExplained(t *testing.T) {
	serveHub(t, map[string]map[string]string{"Org/Empty": {"x.bin": "x"}}, nil)
	explained(t, []mistake{
		{"pull", "-", 2, "needs a model, such as Qwen/Qwen3.5-4B"},
		{"pull a/b c", "-", 2, `takes one model, but there is also "c"`},
		{"pull tiny", "-", 2, "tiny is embedded in the program"},
		{"pull https://huggingface.co/a/b", "-", 2, "want ORG/NAME"},
		{"pull a/b@x --revision y", "-", 2, "and --revision both give a revision: leave one out"},
		{"pull a/b --revision ../x", "-", 2, "want a branch, a tag or a commit"},
		{"pull Org/Empty --include [", "-", 2, "syntax error in pattern"},
		{"pull a/b --parallel 99", "-", 2, "want a whole number from 1 to 64"},
		{"pull Org/Empty", "-", 1, "has neither *.safetensors nor *.gguf files; it has x.bin"},
		{"pull Org/None", "-", 1, "Org/None does not exist, or is private: check the name"},
		{"rm Org/None", "-", 1, "Org/None is not in the cache"},
		{"rm ../x", "-", 2, "want ORG/NAME"},
		{"rm tiny", "-", 2, "tiny is embedded in the program"},
		{"list x", "-", 2, "takes no argument"},
		{"run --model Org/None hi", "-", 1, "no such model in the cache: foretoken pull Org/None fetches it"},
		{"run --model None hi", "-", 1, "foretoken pull ORG/None fetches it from the Hugging Face hub"},
	})
}

func TestPullWithoutANetworkSaysWhatWasTried(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	cache := hubEnvironment(t, closed.URL)
	explained(t, []mistake{{"pull Org/Tiny", "-", 1, closed.URL + "/api/models/Org/Tiny/revision/main is not reachable: dial tcp"}})
	o := runIn(t, nil, "pull", "Org/Tiny")
	for _, help := range []string{"HTTPS_PROXY", "HF_ENDPOINT", "--model DIR"} {
		if !strings.Contains(o.err, help) {
			t.Errorf("%q does not name %s", o.err, help)
		}
	}
	folder := filepath.Join(cache, "models--Org--Tiny", "snapshots", pulledCommit)
	if err := os.MkdirAll(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	if o = runIn(t, nil, "pull", "Org/Tiny"); !strings.Contains(o.err, "The cache has Org/Tiny at commit 0123456789ab") {
		t.Errorf("what is in the cache is not named: %+v", o)
	}
	t.Setenv("HF_HUB_OFFLINE", "true")
	if o = runIn(t, nil, "pull", "Org/Tiny"); o.code != exitError || !strings.Contains(o.err, "HF_HUB_OFFLINE is set: unset it") {
		t.Errorf("offline, without the weights: %+v", o)
	}
}

func TestListNamesWhatIsIncomplete(t *testing.T) {
	cache := hubEnvironment(t, "")
	folder := filepath.Join(cache, "models--Org--Half", "snapshots", pulledCommit)
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(folder, 0o777); err != nil {
			t.Fatal(err)
		}
		filetest.Write(t, filepath.Join(folder, name), text)
	}
	write("config.json", tiny.Files()["config.json"])
	if o := runIn(t, nil, "list"); !strings.Contains(o.out, "Org/Half") || !strings.Contains(o.out, "incomplete: foretoken pull Org/Half fetches the weights") {
		t.Errorf("without weights: %+v", o)
	}
	if o := runIn(t, nil, "run", "--model", "Half", "hi"); o.code != exitError || !strings.Contains(o.err, "the weights of Org/Half are not in the cache") {
		t.Errorf("run: %+v", o)
	}
	for _, name := range []string{"model.safetensors.index.json", "model-00001-of-00002.safetensors"} {
		write(name, tiny.Files()[name])
	}
	if o := runIn(t, nil, "list"); !strings.Contains(o.out, "model-00002-of-00002.safetensors") || !strings.Contains(o.out, "missing") {
		t.Errorf("without a shard: %+v", o)
	}
}
