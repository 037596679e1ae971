package qwen35

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// What the process that TestOpenPeakMemory starts is to load, and how.
const (
	loadFolder   = "FORETOKEN_TEST_LOAD"
	loadQuantize = "FORETOKEN_TEST_QUANTIZE"
)

// footprint is the memory that the loading process reports, in bytes.
type footprint struct {
	Base   int64 // most memory it had before loading
	Peak   int64 // and at the end
	Loaded int64 // weights in memory, by their own account
}

// TestOpenPeakMemory loads checkpoints of about 170 MB in a process of its own. At no time
// may it hold 40 MB more than the weights, beyond what it had before: a loader that keeps the
// file's pages beside its copies, or sizes its buffers by the model, does.
func TestOpenPeakMemory(t *testing.T) {
	if dir := os.Getenv(loadFolder); dir != "" {
		measureLoading(t, dir)
		return
	}
	if runtime.GOOS != "linux" {
		t.Skip("peak memory is read from /proc, which only Linux has")
	}
	if testing.Short() {
		t.Skip("writes checkpoints of 170 MB")
	}
	plain, coded := largeCheckpoint(t, 16, 25600, 2), largeCheckpoint(t, 8, 25600, 2)
	for _, c := range []struct {
		name     string
		dir      string
		quantize int
	}{{"bf16", plain, 0}, {"8 bits", coded, 0}, {"bf16 to 4 bits", plain, 4}} {
		t.Run("weights="+c.name, func(t *testing.T) {
			f := loadElsewhere(t, c.dir, c.quantize)
			more := f.Peak - f.Base - f.Loaded
			t.Logf("base %.1f MB, peak %.1f MB, weights %.1f MB: %.1f MB more than the weights", mb(f.Base), mb(f.Peak), mb(f.Loaded), mb(more))
			if c.quantize == 0 && f.Loaded < 150e6 {
				t.Errorf("only %.1f MB of weights", mb(f.Loaded))
			}
			if more > 40e6 {
				t.Errorf("loading took %.1f MB more than the weights, which is above 40", mb(more))
			}
			if more < -f.Loaded/100 {
				t.Errorf("the peak is %.1f MB below the weights: it was not measured", mb(-more))
			}
		})
	}
}

func mb(n int64) float64 { return float64(n) / 1e6 }

// measureLoading is the other process.
func measureLoading(t *testing.T, dir string) {
	var f footprint
	var o model.Options
	if _, err := fmt.Sscan(os.Getenv(loadQuantize), &o.Quantize); err != nil {
		t.Fatal(err)
	}
	f.Base = peakMemory(t)
	r := open(t, dir, 0, o)
	f.Peak = peakMemory(t)
	f.Loaded = r.Info().Bytes
	out := filetest.Encode(t, f)
	fmt.Printf("%s\n", out)
}

// loadElsewhere runs this test again as a process that only loads.
func loadElsewhere(t *testing.T, dir string, quantize int) footprint {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestOpenPeakMemory$")
	// Every thread has a piece of the file in hand: their number is not to be the machine's.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2", loadFolder+"="+dir, fmt.Sprintf("%s=%d", loadQuantize, quantize))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("loading process: %v\n%s", err, out)
	}
	var f footprint
	line, _, _ := bytes.Cut(out, []byte("\n"))
	if err := json.Unmarshal(line, &f); err != nil {
		t.Fatalf("loading process: %v\n%s", err, out)
	}
	return f
}

// peakMemory is the most resident memory this process has had: its own and the pages of
// mapped files.
func peakMemory(t *testing.T) int64 {
	t.Helper()
	status := filetest.Read(t, "/proc/self/status")
	for line := range strings.Lines(string(status)) {
		var kb int64
		if n, err := fmt.Sscanf(line, "VmHWM: %d kB", &kb); n == 1 && err == nil {
			return kb << 10
		}
	}
	t.Fatalf("no VmHWM in %s", status)
	return 0
}

// largeCheckpoint writes a checkpoint with plain weights of 16 bits, or quantized ones of fewer and
// as many times more words and layers. Embedding and output are by far the largest matrices, as in the
// small releases.
func largeCheckpoint(t testing.TB, bits, vocab, layers int) string {
	t.Helper()
	const hidden, width = 1024, 5120
	vocab, layers = vocab*16/bits, layers*16/bits
	config := map[string]any{
		"model_type": "qwen3_5_text", "hidden_size": hidden, "vocab_size": vocab, "num_hidden_layers": layers,
		"intermediate_size": width, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 128,
		"linear_num_key_heads": 2, "linear_num_value_heads": 4,
	}
	text := filetest.Encode(t, config)
	dir := t.TempDir()
	filetest.Write(t, filepath.Join(dir, "config.json"), text)
	s := &shapes{bits: bits}
	s.matrix("embed_tokens", vocab, hidden)
	s.matrix("lm_head", vocab, hidden)
	for i := range layers {
		s.layer(fmt.Sprintf("layers.%d.", i), hidden, width, (i+1)%4 == 0)
	}
	s.vector("norm.weight", hidden)
	if err := s.write(filepath.Join(dir, mainFile)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// shapes lists the tensors of a checkpoint.
type shapes struct {
	bits  int
	decls []checkpoint.Decl
}

func (s *shapes) vector(name string, n int) {
	s.decls = append(s.decls, checkpoint.Decl{Name: name, Type: dtype.BF16, Shape: []int{n}})
}

func (s *shapes) matrix(module string, rows, cols int) {
	if s.bits == 16 {
		s.decls = append(s.decls, checkpoint.Decl{Name: module + ".weight", Type: dtype.BF16, Shape: []int{rows, cols}})
		return
	}
	s.decls = append(s.decls,
		checkpoint.Decl{Name: module + ".weight", Type: dtype.U32, Shape: []int{rows, cols * s.bits / 32}},
		checkpoint.Decl{Name: module + ".scales", Type: dtype.BF16, Shape: []int{rows, cols / 64}},
		checkpoint.Decl{Name: module + ".biases", Type: dtype.BF16, Shape: []int{rows, cols / 64}})
}

// layer has 4 query heads, 2 of keys and values, 4 linear value heads of 2 key heads, all
// 128 wide.
func (s *shapes) layer(p string, hidden, width int, attention bool) {
	s.vector(p+"input_layernorm.weight", hidden)
	s.vector(p+"post_attention_layernorm.weight", hidden)
	if attention {
		s.matrix(p+"self_attn.q_proj", 1024, hidden)
		s.matrix(p+"self_attn.k_proj", 256, hidden)
		s.matrix(p+"self_attn.v_proj", 256, hidden)
		s.matrix(p+"self_attn.o_proj", hidden, 512)
		s.vector(p+"self_attn.q_norm.weight", 128)
		s.vector(p+"self_attn.k_norm.weight", 128)
	} else {
		s.matrix(p+"linear_attn.in_proj_qkv", 1024, hidden)
		s.matrix(p+"linear_attn.in_proj_z", 512, hidden)
		s.matrix(p+"linear_attn.in_proj_b", 4, hidden)
		s.matrix(p+"linear_attn.in_proj_a", 4, hidden)
		s.matrix(p+"linear_attn.out_proj", hidden, 512)
		s.vector(p+"linear_attn.conv1d.weight", 1024*4)
		s.vector(p+"linear_attn.A_log", 4)
		s.vector(p+"linear_attn.dt_bias", 4)
		s.vector(p+"linear_attn.norm.weight", 128)
	}
	s.matrix(p+"mlp.gate_proj", width, hidden)
	s.matrix(p+"mlp.up_proj", width, hidden)
	s.matrix(p+"mlp.down_proj", hidden, width)
}

// write fills all tensors with the same bytes, which are small numbers in bf16.
func (s *shapes) write(path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if closed := file.Close(); err == nil {
			err = closed
		}
	}()
	buffer := bufio.NewWriterSize(file, 1<<20)
	header, err := checkpoint.FileHeader(s.decls, map[string]string{"format": "mlx"})
	if err != nil {
		return err
	}
	if _, err := buffer.Write(header); err != nil {
		return err
	}
	piece := bytes.Repeat([]byte{0x3c}, 1<<20)
	for _, d := range s.decls {
		for n := weights.Elements(d.Shape) * d.Type.Size(); n > 0; n -= len(piece) {
			if _, err := buffer.Write(piece[:min(n, len(piece))]); err != nil {
				return err
			}
		}
	}
	return buffer.Flush()
}

// BenchmarkOpen loads a checkpoint of 4 GB that is in the page cache.
func BenchmarkOpen(b *testing.B) {
	for _, bits := range []int{4, 8, 16} {
		b.Run(fmt.Sprintf("bits=%d", bits), func(b *testing.B) {
			dir := largeCheckpoint(b, bits, 51200, 99)
			c, err := checkpoint.Open(dir)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(c.Bytes())
			if err := c.Close(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				r := open(b, dir, 0, model.Options{})
				b.StopTimer()
				if err := r.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
