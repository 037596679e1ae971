package doctor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	_ "github.com/foretoken/foretoken/internal/model/qwen35"
	"github.com/foretoken/foretoken/internal/spec"
)

// edit changes the bytes of a tensor of tiny, by its name after the language model's prefix;
// false leaves it out.
type edit func(name string, data []byte) bool

func asIs(string, []byte) bool { return true }

// editTiny is the trained model with its tensors edited and its texts replaced, as files.
// An empty text removes a file.
func editTiny(t testing.TB, change edit, texts map[string]string) map[string]string {
	t.Helper()
	dir := golden.Dir(t, "tiny")
	from := golden.Open(t, dir)
	var decls []checkpoint.Decl
	var contents [][]byte
	for _, name := range from.Tensors() {
		x, err := from.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		data := bytes.Clone(x.Data) // the file's own must not be changed
		if change(strings.TrimPrefix(name, "language_model."), data) {
			decls = append(decls, checkpoint.Decl{Name: name, Type: x.Type, Shape: x.Shape})
			contents = append(contents, data)
		}
	}
	files := map[string]string{"model.safetensors": golden.Tensors(t, decls, contents, from.Metadata(from.Files()[0]))}
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "preprocessor_config.json"} {
		text := filetest.Read(t, filepath.Join(dir, name))
		files[name] = string(text)
	}
	for name, text := range texts {
		files[name] = text
		if text == "" {
			delete(files, name)
		}
	}
	return files
}

// openEdited opens what editTiny makes.
func openEdited(t testing.TB, files map[string]string) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.OpenFiles("edited", files)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// template finds the chat template as a command would.
func template(c *checkpoint.Checkpoint) (source, tools string, err error) {
	text, err := c.ReadFile("chat_template.jinja")
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	return string(text), "", err
}

// load loads a checkpoint on a device whose memory only the device can read.
func load(t testing.TB, c *checkpoint.Checkpoint) (*Facts, model.Model, backend.Backend) {
	t.Helper()
	b := backendtest.NewOpaque(backendtest.Open(t, backend.Options{Threads: 1}))
	facts, m := loadOn(t, c, b)
	return facts, m, b
}

// loadOn is load on a device. The processor itself takes a third of the time of the one of load, which draws in portable code.
func loadOn(t testing.TB, c *checkpoint.Checkpoint, b backend.Backend) (*Facts, model.Model) {
	t.Helper()
	facts := Inspect(c, InspectOptions{Template: template})
	if !facts.Loadable {
		t.Fatalf("cannot be loaded: %+v", facts.Problems)
	}
	m, err := model.Open(c, b, model.Options{MaxDrafts: spec.MaxDepth, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return facts, m
}

// addTo adds to every number of a float32 tensor.
func addTo(data []byte, x float32) {
	for i := 0; i < len(data); i += 4 {
		v := math.Float32frombits(binary.LittleEndian.Uint32(data[i:]))
		binary.LittleEndian.PutUint32(data[i:], math.Float32bits(v+x))
	}
}

// The ways in which heads get damaged.

func withoutHead(name string, _ []byte) bool { return !strings.HasPrefix(name, "mtp.") }

func withoutNorm(name string, _ []byte) bool { return name != "mtp.pre_fc_norm_hidden.weight" }

func shiftedTwice(name string, data []byte) bool {
	if strings.HasPrefix(name, "mtp.") && strings.Contains(name, "norm") {
		addTo(data, 1)
	}
	return true
}

func neverShifted(name string, data []byte) bool {
	if strings.HasPrefix(name, "mtp.pre_fc_norm") {
		addTo(data, -1)
	}
	return true
}

func permuted(name string, data []byte) bool {
	const rows = 384 // of fc; the halves of each belong to the embedding and to the hidden state
	for n := len(data) / rows; strings.HasPrefix(name, "mtp.fc.") && len(data) > 0; data = data[n:] {
		for i := range n / 2 {
			data[i], data[n/2+i] = data[n/2+i], data[i]
		}
	}
	return true
}

func randomized() edit {
	rng := rand.New(rand.NewPCG(3, 4))
	return func(name string, data []byte) bool {
		if strings.HasPrefix(name, "mtp.") && strings.HasSuffix(name, ".weight") && !strings.Contains(name, "norm") {
			for i := range data {
				data[i] = byte(rng.Uint32())
			}
		}
		return true
	}
}
