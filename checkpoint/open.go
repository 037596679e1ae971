package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Names of the files that have a meaning of their own.
const (
	configFile     = "config.json"
	generationFile = "generation_config.json"
	indexFile      = "model.safetensors.index.json"
	manifestFile   = "mtp/manifest.json"
	sidecarFolder  = "mtp/weights.safetensors"
)

// Limits on what is read into memory whole.
const (
	maxConfig = 16 << 20
	maxFile   = 256 << 20 // the largest tokenizer.json in circulation has 35 MB
)

// sidecarNames are files beside the shards that hold a head which the index of the
// main weights may not mention.
var sidecarNames = []string{"mtp.safetensors", "model-mtp.safetensors", sidecarFolder}

// Checkpoint is an open model: its JSON files and its tensors. The tensors of the
// main files are its own methods; those of other files are under Sidecars.
type Checkpoint struct {
	*Weights
	// Sidecars are weight files that belong to the model without being part of its
	// main weights, in a fixed order. They are closed with the checkpoint.
	Sidecars []*Sidecar

	source     source
	config     []byte
	generation []byte
}

// Sidecar is a file of weights beside the main ones.
type Sidecar struct {
	*Weights
	File     string
	Manifest []byte // JSON that describes it; nil when there is none
}

// Open opens the model folder dir. The caller closes it.
func Open(dir string) (*Checkpoint, error) { return open(dir, folder(dir)) }

// OpenFiles opens a model whose files are in memory, by their path relative to the
// model folder. The contents are used in place, not copied. name stands in errors.
func OpenFiles(name string, files map[string]string) (*Checkpoint, error) {
	for f := range files {
		if !fs.ValidPath(f) {
			return nil, fmt.Errorf("checkpoint: %s: file name %q is not valid", name, f)
		}
	}
	return open(name, embedded(files))
}

func open(name string, src source) (*Checkpoint, error) {
	c := &Checkpoint{Weights: newWeights(name), source: src}
	if err := c.open(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Checkpoint) open() error {
	var err error
	if c.config, err = c.source.read(configFile, maxConfig); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("checkpoint: %s is not a model folder: %w", c.name, err)
		}
		return fmt.Errorf("checkpoint: %s: %w", configFile, err)
	}
	if c.quant, err = parseQuantization(c.config); err != nil {
		return err
	}
	c.generation, err = c.source.read(generationFile, maxConfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("checkpoint: %s: %w", generationFile, err)
	}
	shards, err := c.shards()
	if err != nil {
		return err
	}
	return c.openSidecars(shards)
}

// shards opens the main weight files and returns their names.
func (c *Checkpoint) shards() ([]string, error) {
	index, err := c.source.read(indexFile, maxHeader)
	if err == nil {
		return c.openIndex(index)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("checkpoint: %s: %w", indexFile, err)
	}
	names, err := c.source.list()
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %s: %w", c.name, err)
	}
	// Without an index the files called model… are the model, and others beside them
	// are not; if there are none of that name, all are.
	names = slices.DeleteFunc(names, func(n string) bool {
		return path.Ext(n) != ".safetensors" || strings.HasPrefix(n, ".") || slices.Contains(sidecarNames, n)
	})
	if main := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, "model") }); len(main) > 0 {
		names = main
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("checkpoint: %s: no *.safetensors file: other weight formats are not read", c.name)
	}
	for _, n := range names {
		if err := c.openFile(c.Weights, n); err != nil {
			return nil, err
		}
	}
	return names, nil
}

func (c *Checkpoint) openFile(w *Weights, name string) error {
	data, mapped, err := c.source.open(name)
	if err != nil {
		return fmt.Errorf("checkpoint: %s: %w", name, err)
	}
	return w.add(&file{name: name, data: data, mapped: mapped})
}

// openSidecars opens what there is of sidecarNames, leaving out those that the
// index made main weights.
func (c *Checkpoint) openSidecars(shards []string) error {
	for _, name := range sidecarNames {
		if slices.Contains(shards, name) {
			continue
		}
		w := newWeights(path.Join(c.name, name))
		w.quant = c.quant
		if err := c.openFile(w, name); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return errors.Join(err, w.Close())
		}
		s := &Sidecar{Weights: w, File: name}
		c.Sidecars = append(c.Sidecars, s)
		if name != sidecarFolder {
			continue
		}
		var err error
		s.Manifest, err = c.source.read(manifestFile, maxConfig)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("checkpoint: %s: %w", manifestFile, err)
		}
	}
	return nil
}

// Close gives all files back. Tensors and matrices taken from the checkpoint or its
// sidecars must not be touched any more.
func (c *Checkpoint) Close() error {
	err := c.Weights.Close()
	for _, s := range c.Sidecars {
		err = errors.Join(err, s.Close())
	}
	return err
}

// Name is the folder, or the name given to OpenFiles.
func (c *Checkpoint) Name() string { return c.name }

// Config is the text of config.json. It must not be changed.
func (c *Checkpoint) Config() []byte { return c.config }

// GenerationConfig is the text of generation_config.json, nil when there is none.
// It must not be changed.
func (c *Checkpoint) GenerationConfig() []byte { return c.generation }

// ReadFile returns the contents of another file of the model, such as
// tokenizer.json. The error wraps fs.ErrNotExist when there is none.
func (c *Checkpoint) ReadFile(name string) ([]byte, error) {
	if !fs.ValidPath(name) || strings.ContainsAny(name, `\:`) {
		return nil, fmt.Errorf("checkpoint: file %q: %w", name, fs.ErrInvalid)
	}
	b, err := c.source.read(name, maxFile)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: file %q: %w", name, err)
	}
	return b, nil
}
