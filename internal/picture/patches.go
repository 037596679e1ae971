package picture

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
)

// Patches is an image or video as input of the tower: rows of numbers, one for each patch. Bytes
// are kept and numbers made on demand: that takes a quarter of the memory, and an
// eighth for a still image, whose numbers are repeated for each of two frames.
type Patches struct {
	Grid Grid
	// Hash is of all inputs of the rows: equal images have equal hashes, in any file format, and
	// different images have different ones.
	Hash [32]byte

	config Config
	frames []*Image        // resized
	values [3][256]float32 // of a color's bytes
}

// Prepare resizes an image and cuts it into patches, on at most threads threads.
func (c Config) Prepare(m *Image, threads int) (*Patches, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	w, h, err := c.Size(m.Width, m.Height)
	if err != nil {
		return nil, err
	}
	return c.cut([]*Image{m}, w, h, threads), nil
}

// PrepareVideo is Prepare for the frames of a video, which have one size.
func (c Config) PrepareVideo(frames []*Image, threads int) (*Patches, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if len(frames) == 0 {
		return nil, fmt.Errorf("%w: video without frames", errShape)
	}
	first := frames[0]
	for i, m := range frames {
		if m.Width != first.Width || m.Height != first.Height {
			return nil, fmt.Errorf("%w: video with a first frame of %d×%d pixels and frame %d of %d×%d",
				errShape, first.Width, first.Height, i+1, m.Width, m.Height)
		}
	}
	w, h, err := c.VideoSize(len(frames), first.Width, first.Height)
	if err != nil {
		return nil, err
	}
	return c.cut(frames, w, h, threads), nil
}

// cut makes the patches of frames resized to w×h.
func (c Config) cut(frames []*Image, w, h, threads int) *Patches {
	p := &Patches{Grid: Grid{ceilDiv(len(frames), c.Temporal), h / c.Patch, w / c.Patch}, config: c}
	for _, m := range frames {
		p.frames = append(p.frames, m.resize(w, h, threads))
	}
	for i := range p.values {
		mean, deviation := float32(c.Mean[i]*255), float32(c.Std[i]*255) // rounded, on every processor
		for b := range p.values[i] {
			p.values[i][b] = (float32(b) - mean) / deviation
		}
	}
	p.hash()
	return p
}

func (p *Patches) hash() {
	c := p.config
	head := []byte("foretoken patches 1\x00")
	for _, n := range []int{c.Patch, c.Temporal, c.Merge, p.Grid.Height, p.Grid.Width, len(p.frames)} {
		head = binary.LittleEndian.AppendUint32(head, uint32(n))
	}
	for i := range 3 {
		head = binary.LittleEndian.AppendUint32(head, math.Float32bits(c.Mean[i]))
		head = binary.LittleEndian.AppendUint32(head, math.Float32bits(c.Std[i]))
	}
	sum := sha256.New()
	sum.Write(head)
	for _, m := range p.frames {
		sum.Write(m.Pix)
	}
	sum.Sum(p.Hash[:0])
}

// Rows is how many rows there are, one for each patch of the grid.
func (p *Patches) Rows() int { return p.Grid.Time * p.Grid.Height * p.Grid.Width }

// Width is how many numbers a row has: 3 colors, times Temporal frames, times Patch×Patch pixels.
func (p *Patches) Width() int { return 3 * p.config.Temporal * p.config.Patch * p.config.Patch }

// Bytes is the memory of the patches.
func (p *Patches) Bytes() (n int) {
	for _, m := range p.frames {
		n += len(m.Pix)
	}
	return n
}

// Tokens is the number of tokens in a prompt.
func (p *Patches) Tokens() int { return p.Grid.Tokens(p.config.Merge) }

// Read writes rows from the first-th on into out, as many as it holds. The patches of a token follow
// each other, line by line, then the tokens do; within a row the color is outermost, then the
// frame, then the line.
func (p *Patches) Read(first int, out []float32) {
	c := p.config
	if len(out)%p.Width() != 0 || first < 0 || first+len(out)/p.Width() > p.Rows() {
		panic(fmt.Sprintf("image: %d numbers from row %d on, of %d rows of %d", len(out), first, p.Rows(), p.Width()))
	}
	perToken, perFrame := c.Merge*c.Merge, p.Grid.Height*p.Grid.Width
	for row := first; len(out) > 0; row++ {
		time, patch := row/perFrame, row%perFrame
		token, inside := patch/perToken, patch%perToken
		tokens := p.Grid.Width / c.Merge // in a line
		y := (token/tokens*c.Merge + inside/c.Merge) * c.Patch
		x := (token%tokens*c.Merge + inside%c.Merge) * c.Patch
		for color := range 3 {
			values := &p.values[color]
			for t := range c.Temporal {
				m := p.frames[min(time*c.Temporal+t, len(p.frames)-1)]
				for line := range c.Patch {
					pix := m.row(y + line)[3*x+color:]
					for i := range c.Patch {
						out[i] = values[pix[3*i]]
					}
					out = out[c.Patch:]
				}
			}
		}
	}
}
