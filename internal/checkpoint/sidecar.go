package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Files beside the shards with a head that the index of the main weights may not
// list. The last is the head as a folder with a config, inside the model's.
const (
	manifestFile  = "mtp/manifest.json"
	manifestedBy  = "mtp/weights.safetensors"
	drafterFolder = "mtp"
	drafterFile   = "model.safetensors"
)

var sidecarNames = []string{SidecarFile, "model-mtp.safetensors", manifestedBy, drafterFolder + "/" + drafterFile}

// SidecarFile is the file of a head that was put beside the weights of a model.
const SidecarFile = "mtp.safetensors"

// Keys of the metadata of a head that was fetched from another repository.
const (
	OriginKey = "foretoken.origin" // ORG/NAME@COMMIT
	NormsKey  = "foretoken.norms"  // the convention of its norms, if the repository's weights tell it
)

// IsSidecar reports whether a file of a model folder, by its path there, is one of a head beside
// the weights.
func IsSidecar(file string) bool { return slices.Contains(sidecarNames, file) }

// Sidecar is a file of weights beside the main ones.
type Sidecar struct {
	*Weights
	File     string // relative to the checkpoint
	Manifest []byte // JSON that describes it; nil when there is none
	Apart    bool   // it is in a folder beside the checkpoint's, found by its name

	config []byte // of the sidecar; nil: none
}

// OpenPart is Open for a folder of which only some tensors are wanted: shards in which the
// index places none of those are not opened and may be missing. All tensors of the opened ones
// are available.
func OpenPart(dir string, want func(tensor string) bool) (*Checkpoint, error) {
	return open(dir, folder(dir), Checkpoint{want: want})
}

// openSidecars opens the existing files of sidecarNames, except those that the index made
// main weights, and a drafter in the folder beside the model's with the same name and
// the suffix -mtp.
func (c *Checkpoint) openSidecars(shards []string) error {
	for _, name := range sidecarNames {
		if slices.Contains(shards, name) {
			continue
		}
		s := &Sidecar{File: name}
		if err := c.openSidecar(s, c.source, name); err != nil {
			return err
		}
	}
	dir, ok := c.source.(folder)
	if !ok {
		return nil
	}
	full, err := filepath.Abs(string(dir))
	if err != nil {
		return fmt.Errorf("checkpoint: %s: %w", c.name, err)
	}
	beside := folder(full + "-mtp")
	if !isDrafter(beside) {
		return nil
	}
	return c.openSidecar(&Sidecar{File: path.Join("..", filepath.Base(string(beside)), drafterFile), Apart: true}, beside, drafterFile)
}

// isDrafter reports whether a folder holds a head and not a whole model.
func isDrafter(dir folder) bool {
	config, err := dir.read(configFile, maxConfig)
	var c struct {
		ModelType string `json:"model_type"`
	}
	return err == nil && json.Unmarshal(config, &c) == nil && strings.HasSuffix(c.ModelType, "_mtp")
}

// openSidecar completes s, whose weights are the named file of src, and adds it to the
// checkpoint if there is such a file.
func (c *Checkpoint) openSidecar(s *Sidecar, src source, name string) error {
	s.Weights = newWeights(path.Join(c.name, s.File))
	s.quant = c.quant
	err := c.openFrom(src, s.Weights, name, s.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = s.describe(src, name)
	}
	if err == nil {
		err = s.foreign()
	}
	if err != nil {
		return c.refuse(errors.Join(err, s.Close()))
	}
	c.Sidecars = append(c.Sidecars, s)
	return nil
}

// describe reads the description beside the file: a manifest, or a
// config, whose quantization is then not that of the model.
func (s *Sidecar) describe(src source, name string) (err error) {
	if name == manifestedBy {
		if s.Manifest, err = src.read(manifestFile, maxConfig); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("checkpoint: %s: %w", manifestFile, err)
		}
		return nil
	}
	if path.Base(name) != drafterFile {
		return nil
	}
	config, err := src.read(path.Join(path.Dir(name), configFile), maxConfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil:
		s.config = config
		s.quant, err = parseQuantization(config, nil)
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %s of %s: %w", configFile, s.File, err)
	}
	return nil
}
