package checkpoint

import "encoding/binary"

// Examine opens the readable part of a damaged model folder.
// Damage lists what Open would have refused. Of a truncated file, the tensors
// before the end are there. An error says that there is no folder, or
// no config.json in it. The caller closes the checkpoint, and does not run it.
func Examine(dir string) (*Checkpoint, error) {
	return open(dir, folder(dir), Checkpoint{examined: true})
}

// Damage lists the faults for which Open would have refused a checkpoint that Examine opened; nil if
// there are none.
func (c *Checkpoint) Damage() []error { return c.damage }

// refuse returns err, but notes it where the checkpoint is only to be examined.
func (c *Checkpoint) refuse(err error) error {
	if err == nil || !c.examined {
		return err
	}
	c.damage = append(c.damage, err)
	return nil
}

// salvage adds the complete tensors of a refused file that are in no other.
func (w *Weights) salvage(f *file) {
	start := 0
	if !f.placed {
		if len(f.entries) == 0 {
			return // then the header may not even fit the file
		}
		start = 8 + int(binary.LittleEndian.Uint64(f.data))
	}
	for _, e := range f.entries {
		size, ok := byteSize(e.typ, e.shape)
		if _, taken := w.tensors[e.name]; taken || !ok || e.begin > e.end || e.end > len(f.data)-start || e.end-e.begin != size {
			continue
		}
		e.begin += start
		e.end += start
		w.tensors[e.name] = e
	}
}
