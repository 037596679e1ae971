package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Names of special files.
const (
	configFile     = "config.json"
	generationFile = "generation_config.json"
	quantizeFile   = "quantize_config.json" // of GPTQ, if config.json has nothing
)

// IndexFile is the name of the file that maps tensors to files of weights.
const IndexFile = "model.safetensors.index.json"

// Limits on files that are read into memory whole.
const (
	maxConfig = 16 << 20
	maxFile   = 256 << 20 // the largest tokenizer.json in circulation has 35 MB
)

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
	index      []byte // nil: none

	want     func(tensor string) bool // of OpenPart; nil: everything
	examined bool                     // opened by Examine
	damage   []error
}

// Open opens the model folder dir. The caller closes it.
func Open(dir string) (*Checkpoint, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("checkpoint: %s is a file, but not a GGUF file: give a folder with config.json and *.safetensors files, or a file whose name ends in .gguf", dir)
	}
	return open(dir, folder(dir), Checkpoint{})
}

// OpenFiles opens a model whose files are in memory, by their path relative to the
// model folder. The contents are used in place, not copied. name stands in errors.
func OpenFiles(name string, files map[string]string) (*Checkpoint, error) {
	for f := range files {
		if !fs.ValidPath(f) {
			return nil, fmt.Errorf("checkpoint: %s: file name %q is not valid", name, f)
		}
	}
	return open(name, embedded(files), Checkpoint{})
}

// open opens the files of src, with the options in c.
func open(name string, src source, c Checkpoint) (*Checkpoint, error) {
	c.Weights, c.source = newWeights(name), src
	if err := c.open(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &c, nil
}

func (c *Checkpoint) open() error {
	if err := c.readConfig(); err != nil {
		return err
	}
	shards, err := c.shards()
	if err := c.refuse(err); err != nil {
		return err
	}
	if err := c.refuse(c.foreign()); err != nil {
		return err
	}
	return c.openSidecars(shards)
}

// readConfig reads the JSON files that every checkpoint may have.
func (c *Checkpoint) readConfig() error {
	var err error
	if c.config, err = c.source.read(configFile, maxConfig); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return c.noConfig(err)
		}
		return fmt.Errorf("checkpoint: %s: %w", configFile, err)
	}
	beside, err := c.source.read(quantizeFile, maxConfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("checkpoint: %s: %w", quantizeFile, err)
	}
	c.quant, err = parseQuantization(c.config, beside)
	if err := c.refuse(err); err != nil {
		return err
	}
	c.generation, err = c.source.read(generationFile, maxConfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if err := c.refuse(fmt.Errorf("checkpoint: %s: %w", generationFile, err)); err != nil {
			return err
		}
	}
	return nil
}

// noConfig is the error of a folder without config.json. It names a GGUF file in the folder.
func (c *Checkpoint) noConfig(err error) error {
	names, _ := c.source.list() // a folder that cannot be read has no such file
	for _, n := range names {
		if path.Ext(n) == ".gguf" {
			return fmt.Errorf("checkpoint: %s is not a model folder, it has no %s: give the path of a GGUF file, such as %s", c.name, configFile, filepath.Join(c.name, n))
		}
	}
	return fmt.Errorf("checkpoint: %s is not a model folder: %w", c.name, err)
}

// shards opens the main weight files and returns their names.
func (c *Checkpoint) shards() ([]string, error) {
	index, err := c.source.read(IndexFile, maxHeader)
	switch {
	case err == nil:
		c.index = index
		names, err := c.openIndex(index)
		if err := c.refuse(err); err != nil || names != nil {
			return names, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("checkpoint: %s: %w", IndexFile, err)
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
		return nil, fmt.Errorf("checkpoint: %s: no *.safetensors file: other weight formats are not supported", c.name)
	}
	for _, n := range names {
		if err := c.refuse(c.openFile(c.Weights, n)); err != nil {
			return nil, err
		}
	}
	return names, nil
}

func (c *Checkpoint) openFile(w *Weights, name string) error {
	return c.openFrom(c.source, w, name, name)
}

// openFrom opens a file of any source, which is called label in messages.
func (c *Checkpoint) openFrom(src source, w *Weights, name, label string) error {
	f, err := src.open(name)
	if err != nil {
		return fmt.Errorf("checkpoint: %s: %w", label, err)
	}
	f.name = label
	if err := w.add(f); err != nil {
		if c.examined {
			w.salvage(f)
		}
		return c.refuse(err)
	}
	return nil
}

// Close unmaps all files. Tensors and matrices taken from the checkpoint or its
// sidecars must not be used after it.
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

// ReadFile returns the contents of another file of the model, such as
// tokenizer.json. The error wraps fs.ErrNotExist if it does not exist.
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
