package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
)

// texts are the files of a model that do not depend on its weights.
var texts = []string{
	"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "added_tokens.json", "special_tokens_map.json",
	"chat_template.jinja", "chat_template.json", "generation_config.json",
	"LICENSE", "LICENSE.txt", "NOTICE",
}

// visionTexts are the files of a vision tower.
var visionTexts = []string{"preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json"}

// copyTexts copies the existing texts, and those of a vision tower if one is written.
func copyTexts(src *checkpoint.Checkpoint, dir string, vision bool) error {
	list := texts
	if vision {
		list = slices.Concat(texts, visionTexts)
	}
	for _, name := range list {
		b, err := src.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeJSON writes a file that ends with a line break, its keys sorted.
func writeJSON(dir, name string, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644)
}

// setType sets the type of numbers in the config, if one was requested.
func setType(config map[string]any, t dtype.Type) {
	for name, x := range types {
		if x != t {
			continue
		}
		text, nested := config["text_config"].(map[string]any)
		if !nested {
			text = config
		}
		text["dtype"] = name
		for _, m := range []map[string]any{config, text} {
			for _, key := range []string{"dtype", "torch_dtype"} {
				if _, ok := m[key]; ok {
					m[key] = name
				}
			}
		}
	}
}

// coding is an encoding as a quantization block writes it.
type coding struct {
	mode        string
	bits, group int
}

func codingOf(f *dtype.Matrix) coding { return coding{f.Format.String(), f.ElementBits(), f.Group} }

// object is the coding as JSON. For a single module it leaves the usual mode out, which
// older readers do not know there.
func (c coding) object(single bool) map[string]any {
	m := map[string]any{"bits": c.bits, "group_size": c.group, "mode": c.mode}
	if single && c.mode == dtype.Affine.String() {
		delete(m, "mode")
	}
	return m
}

// quantization is the block that describes the quantized matrices of a plan: one encoding
// for all, and exceptions by path; nil if there are none. Plain matrices
// are not listed: readers know them by their tensors.
func (p *plan) quantization(asked *Encoding) map[string]any {
	weights := map[coding]int64{}
	for _, it := range p.items {
		if it.quantized() {
			weights[codingOf(&it.form)] += it.weight.Parameters()
		}
	}
	if len(weights) == 0 {
		return nil
	}
	var general coding // of most weights; of two the first
	for _, it := range p.items {
		if c := codingOf(&it.form); weights[c] > weights[general] {
			general = c
		}
	}
	if asked != nil && asked.Format != dtype.Plain {
		f := asked.form(dtype.BF16)
		general = codingOf(&f)
	}
	block := general.object(false)
	for _, it := range p.items {
		if c := codingOf(&it.form); it.quantized() && c != general {
			block[strings.TrimSuffix(it.decls[0].Name, ".weight")] = c.object(true)
		}
	}
	return block
}

func (it *item) quantized() bool {
	return it.weight.IsMatrix() && it.form.Format != dtype.Plain
}

// setQuantization adds the block under both of its names.
func setQuantization(config, block map[string]any) {
	if block != nil {
		config["quantization"], config["quantization_config"] = block, block
	}
}

// writeIndex writes which tensor is in which file.
func (p *plan) writeIndex(dir string, s *Summary) error {
	where := map[string]string{}
	for _, it := range p.items {
		for _, d := range it.decls {
			where[d.Name] = p.files[it.file]
		}
	}
	return writeJSON(dir, checkpoint.IndexFile, map[string]any{
		"metadata":   map[string]any{"total_size": s.BytesOut, "total_parameters": s.Parameters},
		"weight_map": where,
	})
}
