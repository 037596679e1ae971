package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/jsontext"
)

// openIndex opens the shards of an index and checks their tensors against
// the index. Tensors missing in the index are kept: some tools do not update it.
func (c *Checkpoint) openIndex(data []byte) ([]string, error) {
	index, err := ParseIndex(data)
	if err != nil {
		return nil, err
	}
	if c.want != nil {
		maps.DeleteFunc(index, func(_ string, names []string) bool { return !slices.ContainsFunc(names, c.want) })
	}
	shards := make([]string, 0, len(index))
	for shard := range index {
		shards = append(shards, shard)
	}
	slices.Sort(shards)
	for _, shard := range shards {
		if err := c.openFile(c.Weights, shard); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("checkpoint: shard %s with %s is missing: download the model again: %w",
					shard, nameList(index[shard]), fs.ErrNotExist)
			}
			if err := c.refuse(err); err != nil {
				return nil, err
			}
			continue
		}
		for _, name := range index[shard] {
			if e, ok := c.tensors[name]; !ok || e.file.name != shard {
				err := fmt.Errorf("checkpoint: %s: tensor %q, listed in %s: %w", shard, name, IndexFile, ErrMissing)
				if err := c.refuse(err); err != nil {
					return nil, err
				}
				break // one tensor per shard is enough for the error
			}
		}
	}
	return shards, nil
}

// ParseIndex reads the text of an index: the tensors of each shard.
func ParseIndex(data []byte) (map[string][]string, error) {
	index, err := parseIndex(data)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %s: %w", IndexFile, err)
	}
	return index, nil
}

// parseIndex reads the weight map of an index: shard → names of its tensors.
func parseIndex(data []byte) (map[string][]string, error) {
	index, seen, found := map[string][]string{}, map[string]bool{}, false
	err := jsontext.Read(data, jsonLimits, func(r *jsontext.Reader) error {
		return r.Object(func(key []byte) error {
			if string(key) != "weight_map" {
				return r.Skip()
			}
			if found {
				return r.Errorf("weight_map appears twice")
			}
			found = true
			return r.Object(func(key []byte) error {
				name := string(key)
				text, err := r.Text()
				shard := string(text)
				switch {
				case err != nil:
					return err
				case seen[name]:
					return r.Errorf("tensor %q appears twice", name)
				case !plainName(shard):
					return r.Errorf("tensor %q: shard %q is not a file name in the folder", name, shard)
				}
				seen[name] = true
				index[shard] = append(index[shard], name)
				return nil
			})
		})
	})
	if err == nil && len(index) == 0 {
		err = errors.New("no weight_map")
	}
	return index, err
}

// plainName reports whether a name from a file is one inside the folder:
// not a path on any system.
func plainName(name string) bool {
	return fs.ValidPath(name) && name != "." && !strings.ContainsAny(name, "/\\:\x00")
}

// nameList writes the first few of many names.
func nameList(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
