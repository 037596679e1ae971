// Package golden gives tests the results of the reference implementation, and the
// tolerances within which we must agree with it.
//
// It has three checkpoints in the repository (tiny, dense and
// moe) with the tokens, logits and states that Hugging Face transformers computed
// for them, and the hand-checkable models of the specification: deterministic
// weights and the numbers that follow from them. It does not know our models:
// the tests run the checkpoints. Only tests import this package.
package golden

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
)

// Names are the fixtures, the smallest first.
//
//   - dense: random weights, bf16, in the layout of the releases with vision tensors
//   - moe: random weights, bf16, fused experts in the model, one by one in the head
//   - tiny: the trained model of internal/models/tiny, MLX layout, 8 bits
var Names = []string{"dense", "moe", "tiny"}

// GLM are the fixtures of the family of GLM and DeepSeek, in the layout of the releases with random
// weights in bf16 and the head as the layer after the last. To keep the repository small they have no
// Margin, Draft2 and Draft3.
//
//   - glm4_moe_lite: latent attention; dense, sparse, sparse
//   - deepseek_v3: latent attention with YaRN, experts in groups; dense, dense, sparse
//   - glm4_moe_air: grouped-query attention; the head has no matrices of its own
//   - glm4_moe: grouped-query attention with norms of heads
var GLM = []string{"glm4_moe_lite", "deepseek_v3", "glm4_moe_air", "glm4_moe"}

// Gemma are the fixtures of Gemma 4, in the layout of the releases with random weights in bf16. Each has an assistant,
// a drafter of four layers that reads the memory of the model, whose folder is NAME/assistant for Dir.
//
//   - gemma4_dense: sliding and full layers of different heads, whose keys are values too
//   - gemma4_moe: experts beside the dense feed-forward
//   - gemma4_ple: layers that share memory, and embeddings of every layer. The release also stores keys and values of the
//     layers that share, which nothing reads; tests add them
//   - gemma4_unified: the smallest
var Gemma = []string{"gemma4_dense", "gemma4_moe", "gemma4_ple", "gemma4_unified"}

// Fixture is one run of the reference, in float32.
type Fixture struct {
	Name         string    `json:"-"`
	Transformers string    `json:"transformers"` // version of the reference
	Torch        string    `json:"torch"`
	MTPHidden    string    `json:"mtp_hidden"` // which hidden states fed the head
	Acceptance   []float64 `json:"acceptance"` // tiny only: see Case
	Cases        []Case    `json:"cases"`

	arrays arrays
}

// Case is one prompt and its greedy continuation; end tokens were ignored.
// Row t of Argmax, Margin and the drafts belongs to Tokens[t].
//
// The drafts are the head's, teacher-forced: Draft1[t] was fed the hidden state
// of row t and Tokens[t+1], and predicts Tokens[t+2]. Draft2 and Draft3 chain the
// head over the same text, each step attending only to its own stream; a cache
// of true pairs gives slightly different ids there, so compare acceptance, which
// Fixture.Acceptance gives as the share of continuation positions whose first 1,
// 2, 3 chained drafts all equal the greedy text.
type Case struct {
	Prompt []int32   `json:"prompt"`
	Tokens []int32   `json:"tokens"` // Prompt, then the continuation
	Argmax []int32   `json:"argmax"`
	Margin []float32 `json:"margin"` // logit of the first minus logit of the second choice
	Draft1 []int32   `json:"draft1"` // one shorter than Tokens
	Draft2 []int32   `json:"draft2"` // two shorter
	Draft3 []int32   `json:"draft3"` // three shorter
	Text   string    `json:"text"`   // tiny only: the prompt as text
	Output string    `json:"output"` // tiny only: the continuation as text

	// GLM only. Chain[j] is three drafts of a head whose cache holds the true pairs up to row
	// ChainFirst+j, each chained draft appended to them; ChainMargin are their margins.
	Draft1Margin []float32   `json:"draft1_margin"`
	ChainFirst   int         `json:"chain_first"`
	Chain        [][]int32   `json:"chain"`
	ChainMargin  [][]float32 `json:"chain_margin"`
	// Router is the choice of the layers with experts, of case 1; the last is the head's, if there is one.
	Router []Choices `json:"router"`

	// Gemma only. Chain[j] is four guesses of the assistant, with the memory of rows up to ChainFirst+j, from the position
	// of the next one. Draft1AtT[j] is the first of them from the position of the last row. AssistantRows are rows
	// with arrays.
	Draft1AtT     []int32 `json:"draft1_at_t"`
	AssistantRows []int   `json:"assistant_rows"`
}

// Choices are the experts that a layer chose for every row, by rank, and their weights.
type Choices struct {
	Layer   int         `json:"layer"`
	Experts [][]int     `json:"experts"`
	Weights [][]float32 `json:"weights"`
}

// Array is a row-major array of the reference.
type Array struct {
	Shape []int
	Data  []float32
}

// Row returns row i of a matrix, a view.
func (a Array) Row(i int) []float32 {
	width := a.Shape[len(a.Shape)-1]
	return a.Data[i*width : (i+1)*width]
}

// Load reads a fixture, or ends the test.
func Load(tb testing.TB, name string) *Fixture {
	tb.Helper()
	f := &Fixture{Name: name}
	dir := filepath.Join(root(tb), "internal", "golden", "testdata", name)
	if err := json.Unmarshal(filetest.Read(tb, filepath.Join(dir, "golden.json")), f); err != nil {
		tb.Fatalf("golden: %s: %v", name, err)
	}
	f.arrays = readArrays(tb, filepath.Join(dir, "golden.safetensors"))
	return f
}

// Array returns an array by name, or ends the test. To keep the repository small, numbers of Names are rounded: logits to
// multiples of 2^-13 and others to multiples of 2^-14, a thirtieth of their tolerances. For case i there are
//
//	i.logits_last      [3, vocabulary]  the last three prompt rows, of tiny the last one
//	i.hidden_last      [3, width]       the same rows after the final norm
//	i.mtp_logits_last  [3, vocabulary]  the head at the same rows
//
// and for case 0 alone
//
//	0.hidden_states.L   [width]           the stream entering layer L at the last prompt
//	                                      row; the last one is the post-norm output
//	0.state0.recurrent  [heads, dk, dv]   layer 0 after the prompt
//	0.state0.conv       [channels, K]     its last K rows, newest last
//
// or, of GLM, 0.state0.latent [rows, rank] and 0.state0.rope [rows, rotary], the latter with the
// first numbers of all pairs before the second ones; or 0.state0.key and 0.state0.value, both
// [heads, rows, dim]; and for every case i.mtp_hidden_last [3, width], the head's rows after its
// norm. Of Gemma there is nothing of a head, but the memory that the assistant reads after the prompt,
// 0.lent.KIND.key and 0.lent.KIND.value [heads, rows, dim] of the last sliding_attention and full_attention layers that have
// any; for every case i.assistant_hidden [3, 4, width], the rows that the guesses after AssistantRows feed the next
// ones, and i.assistant_logits_at_t [vocabulary] of the first Draft1AtT; and 0.assistant_logits [3, 4, vocabulary] and
// 0.assistant_states.L [assistant's width], the stream entering its layer L in the first guess.
func (f *Fixture) Array(tb testing.TB, name string) Array {
	tb.Helper()
	return f.arrays.get(tb, name)
}

// Dir is the checkpoint folder of a fixture, also that of VisionFixture.
func Dir(tb testing.TB, name string) string {
	tb.Helper()
	model, _ := strings.CutSuffix(name, "/assistant")
	if !slices.Contains(slices.Concat(Names, GLM, []string{"vision"}), name) && !slices.Contains(Gemma, model) {
		tb.Fatalf("golden: no fixture %q, only %q", name, Names)
	}
	if name == "tiny" {
		return filepath.Join(root(tb), "internal", "models", "tiny")
	}
	unpacked.Lock()
	defer unpacked.Unlock()
	dir, ok := unpacked.dirs[name]
	if !ok {
		var err error
		if dir, err = unpack(filepath.Join(root(tb), "internal", "golden", "testdata", name), filepath.Join(root(tb), "bin", "golden")); err != nil {
			tb.Fatalf("golden: %s: %v", name, err)
		}
		unpacked.dirs[name] = dir
	}
	return dir
}

// unpacked is the folders of this process.
var unpacked = struct {
	sync.Mutex
	dirs map[string]string
}{dirs: map[string]string{}}

// unpack writes the checkpoint of a fixture, whose weights are packed in the repository, to a
// folder of to that is named by their hash: tests of other packages find it there.
func unpack(from, to string) (string, error) {
	packed, err := os.ReadFile(filepath.Join(from, "model.safetensors.gz"))
	if err != nil {
		return "", err
	}
	config, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		return "", err
	}
	random, err := os.ReadFile(filepath.Join(from, "random.json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	sum := sha256.Sum256(slices.Concat(config, packed, random))
	dir := filepath.Join(to, fmt.Sprintf("%s-%x", filepath.Base(from), sum[:6]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	weights, err := unpackWeights(packed, random)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return "", err
	}
	unnamed, err := os.MkdirTemp(to, "unpacking-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(unnamed) //nolint:errcheck // where another process was faster
	for name, data := range map[string][]byte{"config.json": config, "model.safetensors": weights} {
		if err := os.WriteFile(filepath.Join(unnamed, name), data, 0o644); err != nil {
			return "", err
		}
	}
	if err := os.Rename(unnamed, dir); err != nil {
		if _, missing := os.Stat(dir); missing != nil {
			return "", err
		}
	}
	return dir, nil
}

// root finds the module by walking up from the test's folder; the paths in a
// binary built with -trimpath would not lead there.
func root(tb testing.TB) string {
	tb.Helper()
	start, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return dir
		}
		if !errors.Is(err, fs.ErrNotExist) {
			tb.Fatal(err)
		}
		if dir == filepath.Dir(dir) {
			tb.Fatalf("golden: no go.mod above %s", start)
		}
	}
}

// arrays are those of a file, by name.
type arrays map[string]Array

func (a arrays) get(tb testing.TB, name string) Array {
	tb.Helper()
	x, ok := a[name]
	if !ok {
		tb.Fatalf("golden: no array %q", name)
	}
	return x
}

// readArrays reads all tensors of one safetensors file.
func readArrays(tb testing.TB, path string) arrays {
	tb.Helper()
	if packed, err := os.ReadFile(path + ".gz"); err == nil {
		data, err := unpackBytes(packed, dtype.F32.Size())
		if err != nil {
			tb.Fatalf("golden: %s: %v", path, err)
		}
		path = filepath.Join(tb.TempDir(), filepath.Base(path))
		filetest.Write(tb, path, data)
	}
	w, err := checkpoint.OpenWeights(path)
	if err != nil {
		tb.Fatal(err)
	}
	all := arrays{}
	for _, name := range w.Tensors() {
		if strings.HasSuffix(name, ".candidates") { // whole numbers, which nothing compares
			continue
		}
		t, err := w.Tensor(name)
		if err != nil {
			tb.Fatal(err)
		}
		if t.Type != dtype.F32 {
			tb.Fatalf("golden: %s: array %q is %v, not F32", path, name, t.Type)
		}
		a := Array{Shape: t.Shape, Data: make([]float32, len(t.Data)/t.Type.Size())}
		dtype.ToF32(a.Data, t.Type, t.Data)
		all[name] = a
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return all
}

// Sampling is how often the head of tiny agrees with the model where tokens are drawn, over
// the prompts of Prompts.
type Sampling struct {
	Producer    string  `json:"producer"`    // how these figures came about
	Temperature float64 `json:"temperature"` // with which texts were drawn, as the two below
	TopK        int     `json:"top_k"`
	TopP        float64 `json:"top_p"`
	Length      int     `json:"length"`    // of each text
	Positions   int     `json:"positions"` // that have a draft token
	Favorite    float64 `json:"favorite"`  // share of them at which the head's first choice is the text
	Coupled     float64 `json:"coupled"`   // at which a draw of the head with the target's noise is the text
	Ratio       float64 `json:"ratio"`     // overlap of the two distributions, on average
}

// SamplingFile is where LoadSampling reads.
func SamplingFile(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(root(tb), "internal", "golden", "testdata", "tiny", "sampling.json")
}

// LoadSampling reads the figures for texts of a length, or ends the test.
func LoadSampling(tb testing.TB, length int) Sampling {
	tb.Helper()
	var list []Sampling
	if err := json.Unmarshal(filetest.Read(tb, SamplingFile(tb)), &list); err != nil {
		tb.Fatalf("golden: sampling: %v", err)
	}
	for _, s := range list {
		if s.Length == length {
			return s
		}
	}
	tb.Fatalf("golden: sampling: no texts of %d tokens", length)
	return Sampling{}
}

// Prompts reads the prompts that acceptance and speed are measured on, by class. Those of
// the class code are raw text, the rest are messages of a user.
func Prompts(tb testing.TB) map[string][]string {
	tb.Helper()
	var p map[string][]string
	path := filepath.Join(root(tb), "internal", "golden", "testdata", "prompts", "bench.json")
	if err := json.Unmarshal(filetest.Read(tb, path), &p); err != nil {
		tb.Fatalf("golden: prompts: %v", err)
	}
	return p
}
