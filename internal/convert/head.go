package convert

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// OpenHead opens a head at path: a file of weights, the folder of a model
// with a head, whose shards without a part of the head may be missing, or a folder with only
// a head. shape is the config.json for a file of weights. The caller
// closes it.
func OpenHead(path string, shape []byte) (*checkpoint.Checkpoint, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	if !info.IsDir() {
		return openHeadFile(path, shape)
	}
	config, err := os.ReadFile(filepath.Join(path, "config.json"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return checkpoint.Open(path) // its error lists the files of a model folder
	case err != nil:
		return nil, fmt.Errorf("convert: %w", err)
	}
	head, err := headNames(config)
	if err != nil {
		return nil, err
	}
	// The tensors that tell how the head is stored are not required, so their file may be missing
	// too.
	c, err := checkpoint.OpenPart(path, func(name string) bool { return head.Has(name) || head.Tells != nil && head.Tells(name) })
	if errors.Is(err, fs.ErrNotExist) {
		return checkpoint.OpenPart(path, head.Has)
	}
	return c, err
}

// headNames are the names of a head by the config of its checkpoint.
func headNames(config []byte) (model.HeadNames, error) {
	f, err := model.OfPart(config)
	if err != nil {
		return model.HeadNames{}, err
	}
	if f.Head == nil {
		return model.HeadNames{Has: func(string) bool { return false }}, nil
	}
	return f.Head(config), nil
}

// openHeadFile opens a file of weights as the head of a model of which nothing else is there.
func openHeadFile(path string, shape []byte) (*checkpoint.Checkpoint, error) {
	w, err := checkpoint.OpenWeights(path)
	if err != nil {
		return nil, err
	}
	config := func() ([]byte, error) { return shape, nil } // other texts may fail
	c, err := checkpoint.Assemble(checkpoint.Assembly{
		Name:  path,
		Texts: map[string]func() ([]byte, error){"config.json": config},
	})
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	side := &checkpoint.Sidecar{Weights: w, File: path}
	c.Sidecars = append(c.Sidecars, side)
	side.Manifest, err = os.ReadFile(filepath.Join(filepath.Dir(path), "manifest.json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("convert: %w", err), c.Close())
	}
	return c, nil
}

// ExtractHead writes the head of src: as one file of weights if out ends with .safetensors,
// and else as a folder with a config, as mlx-vlm loads drafters. Matrices are not
// changed.
func ExtractHead(ctx context.Context, src *checkpoint.Checkpoint, out string, o Options) (s Summary, err error) {
	if err := o.check(); err != nil {
		return s, err
	}
	v, err := model.Inventory(src, weights.HeadOnly, o.Log)
	if err != nil {
		return s, err
	}
	if filepath.Ext(out) == ".safetensors" {
		return writeSidecar(ctx, v, out, &o)
	}
	f, err := newFolder(out, src.Name(), o.Force)
	if err != nil {
		return s, err
	}
	defer func() { err = f.finish(err) }()
	p, err := newRecipe(&o, v).plan(v, func(name string) string { return strings.TrimPrefix(name, "mtp.") })
	if err != nil {
		return s, err
	}
	p.files = []string{"model.safetensors"}
	if err := p.write(ctx, f.temp, &o); err != nil {
		return s, err
	}
	config, err := v.Converted.HeadConfig()
	if err != nil {
		return s, err
	}
	setQuantization(config, p.quantization(nil))
	if err := writeJSON(f.temp, "config.json", config); err != nil {
		return s, err
	}
	return p.summary(v), copyTexts(src, f.temp, false)
}

// writeSidecar writes a head as one file, which appears whole or not at all.
func writeSidecar(ctx context.Context, v *weights.Inventory, out string, o *Options) (s Summary, err error) {
	if _, err := os.Stat(out); err == nil && !o.Force {
		return s, fmt.Errorf("convert: %s: %w", out, fs.ErrExist)
	}
	p, err := newRecipe(o, v).plan(v, func(name string) string { return name })
	if err != nil {
		return s, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(out), "."+filepath.Base(out)+".partial-*")
	if err != nil {
		return s, fmt.Errorf("convert: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p.files = []string{checkpoint.SidecarFile}
	if err := p.write(ctx, dir, o); err != nil {
		return s, err
	}
	return p.summary(v), os.Rename(filepath.Join(dir, checkpoint.SidecarFile), out)
}

// RemoveHead writes the model src without its head.
func RemoveHead(ctx context.Context, src *checkpoint.Checkpoint, dir string, o Options) (Summary, error) {
	return convert(ctx, src, dir, o, func(log *slog.Logger) (*weights.Inventory, error) {
		return model.Inventory(src, weights.WithoutHead, log)
	})
}

// InjectHead puts the head of another checkpoint, as OpenHead opens it, into the model src:
// as a new folder dir in the layout of MLX or, if dir is "", as a file beside the weights
// of src, which must be a folder. The head must be of a model of the same shape. One that
// is there is in the way unless it may be replaced, and one inside the weights is replaced
// only in a new folder.
func InjectHead(ctx context.Context, src, head *checkpoint.Checkpoint, dir string, o Options) (Summary, error) {
	take := func(log *slog.Logger) (*weights.Inventory, error) {
		return joined(src, head, o.Force, log)
	}
	if dir != "" {
		return convert(ctx, src, dir, o, func(log *slog.Logger) (*weights.Inventory, error) {
			v, err := take(log)
			if err != nil {
				return nil, err
			}
			return v, keepsInputs(v, &o)
		})
	}
	if err := o.check(); err != nil {
		return Summary{}, err
	}
	names, err := headNames(src.Config())
	if err != nil {
		return Summary{}, err
	}
	for _, name := range src.Tensors() {
		if t, _ := src.Look(name); names.Has(name) && t.File != checkpoint.SidecarFile {
			return Summary{}, fmt.Errorf("convert: %s has a head among its weights (%s): write to a new folder to replace it", src.Name(), name)
		}
	}
	if _, err := take(o.Log); err != nil {
		return Summary{}, err
	}
	v, err := model.Inventory(head, weights.HeadOnly, o.Log)
	if err != nil {
		return Summary{}, err
	}
	s, err := writeSidecar(ctx, v, filepath.Join(src.Name(), checkpoint.SidecarFile), &o)
	if err != nil {
		return s, err
	}
	return s, announce(src.Name(), v.Converted, names)
}

// keepsInputs refuses a model whose matrices multiply transformed inputs, which the layout of MLX cannot express: stored as
// numbers they would take four times the memory, without a request for that.
func keepsInputs(v *weights.Inventory, o *Options) error {
	if o.Dequantize || o.Quantize != nil {
		return nil
	}
	for _, w := range v.Weights {
		if !w.IsMatrix() {
			continue
		}
		ms, err := w.Stored()
		if err != nil {
			return err
		}
		if ms[0].Input != nil {
			return fmt.Errorf("convert: %s multiplies rotated or reordered inputs, which the layout of a new folder cannot store: inject the head without a new folder, or choose an encoding", w.Name)
		}
	}
	return nil
}

// joined is the model of one checkpoint with the head of another.
func joined(src, head *checkpoint.Checkpoint, replace bool, log *slog.Logger) (*weights.Inventory, error) {
	v, err := model.Inventory(src, weights.WithoutHead, log)
	if err != nil {
		return nil, err
	}
	h, err := model.Inventory(head, weights.HeadOnly, log)
	if err != nil {
		return nil, err
	}
	if !replace {
		if _, err := model.Inventory(src, weights.HeadOnly, log); !errors.Is(err, weights.ErrNoHead) {
			return nil, fmt.Errorf("convert: %s has a head already: %w", src.Name(), fs.ErrExist)
		}
	}
	return v, v.AddHead(h)
}

// announce adds a head that was put beside the weights to the index of a folder, if there is one, and to its
// config, for readers that do not find it by its name.
func announce(dir string, how weights.Converted, head model.HeadNames) error {
	w, err := checkpoint.OpenWeights(filepath.Join(dir, checkpoint.SidecarFile))
	if err != nil {
		return err
	}
	names := w.Tensors()
	if err := w.Close(); err != nil {
		return err
	}
	err = editJSON(dir, checkpoint.IndexFile, func(index map[string]any) bool {
		where, ok := index["weight_map"].(map[string]any)
		if !ok {
			return false
		}
		maps.DeleteFunc(where, func(_ string, file any) bool { return file == checkpoint.SidecarFile })
		for _, name := range names {
			where[name] = checkpoint.SidecarFile
		}
		return true
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return editJSON(dir, "config.json", func(config map[string]any) bool { return promise(config, how, head) })
}

// promise makes a config speak of a head, and no more of the quantization of one that is
// not there any more. It reports whether there was something to change.
func promise(config map[string]any, how weights.Converted, head model.HeadNames) bool {
	changed := how.PromiseHead(config)
	text, _ := config["text_config"].(map[string]any)
	for _, m := range []map[string]any{config, text} {
		for _, key := range []string{"quantization", "quantization_config"} {
			block, _ := m[key].(map[string]any)
			n := len(block)
			maps.DeleteFunc(block, func(path string, _ any) bool { return head.Has(path) })
			changed = changed || len(block) != n
		}
	}
	return changed
}

// editJSON changes a JSON file, which is replaced in one step.
func editJSON(dir, name string, change func(map[string]any) bool) error {
	path := filepath.Join(dir, name)
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	m, err := checkpoint.DecodeObject(old)
	if err != nil {
		return fmt.Errorf("convert: %s: %w", path, err)
	}
	if !change(m) {
		return nil
	}
	temp, err := os.MkdirTemp(dir, "."+name+".partial-*")
	if err != nil {
		return err
	}
	if err = writeJSON(temp, name, m); err == nil {
		err = os.Rename(filepath.Join(temp, name), path)
	}
	return errors.Join(err, os.RemoveAll(temp))
}
