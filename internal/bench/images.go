package bench

import (
	"errors"
	"fmt"
	"time"

	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/picture"
)

// ImageTime is the time from an image to the first token of an answer.
type ImageTime struct {
	Width        int     `json:"width"` // before resizing
	Height       int     `json:"height"`
	Patches      int     `json:"patches"`
	Tokens       int     `json:"tokens"`
	Prepare      float64 `json:"prepare_seconds"` // resizing and cutting, without decoding
	Seconds      float64 `json:"seconds"`         // in the tower
	LongestStep  float64 `json:"longest_step_seconds"`
	PerSecond    float64 `json:"pictures_per_second"` // of the tower
	FirstToken   float64 `json:"first_token_seconds"` // all of it, with the prefill of its tokens and a question
	TowerShares  []Share `json:"shares"`              // of the tower, by operation
	ProductsGOps float64 `json:"gop_s"`               // as Pass has it
}

// question is the number of text tokens that follow an image.
const question = 32

// imageRuns measures images.
type imageRuns struct {
	tower    model.Tower
	patches  []*picture.Patches
	prepare  []timing
	pass     []timing
	longest  []float64
	answered []timing
}

// openSights opens the tower if the options name sizes of images.
func (r *modelRun) openSights() error {
	if len(r.o.Images) == 0 {
		return nil
	}
	s := &r.imageRuns
	if m, ok := r.m.(model.Multimodal); ok {
		var err error
		if s.tower, err = m.Tower(); err != nil {
			return err
		}
	}
	if s.tower == nil {
		return errors.New("bench: models of this family have no vision tower")
	}
	n := len(r.o.Images)
	s.patches, s.prepare, s.pass = make([]*picture.Patches, n), make([]timing, n), make([]timing, n)
	s.longest, s.answered = make([]float64, n), make([]timing, n)
	return nil
}

// measureImages measures each image once.
func (r *modelRun) measureImages() error {
	for i, size := range r.o.Images {
		if err := r.measureImage(i, size); err != nil {
			return fmt.Errorf("bench: image of %d×%d: %w", size[0], size[1], err)
		}
	}
	return nil
}

func (r *modelRun) measureImage(i int, size [2]int) error {
	s := &r.imageRuns
	err := r.add(&s.prepare[i], func() (took time.Duration, err error) {
		c := picture.Images()
		c.MaxPixels = r.o.MaxPixels
		m := &picture.Image{Width: size[0], Height: size[1], Pix: make([]byte, 3*size[0]*size[1])}
		for j := range m.Pix {
			m.Pix[j] = byte(uint32(j) * 2654435761 >> 24) // what it shows does not matter for the time
		}
		start := time.Now()
		s.patches[i], err = c.Prepare(m, 2)
		return time.Since(start), err
	})
	if err != nil {
		return err
	}
	err = r.add(&s.pass[i], func() (time.Duration, error) {
		start := time.Now()
		longest, err := r.pass(s.patches[i])
		s.longest[i] = max(s.longest[i], longest.Seconds())
		return time.Since(start), err
	})
	if err != nil {
		return err
	}
	q, err := measure.Open(r.m, nil, r.pool, r.m.Info().Vocab)
	if err != nil {
		return err
	}
	defer q.Close()
	tokens := r.tokens(s.patches[i].Tokens() + question)
	return r.add(&s.answered[i], func() (time.Duration, error) { return q.Prefill(tokens, 1) })
}

// pass computes an image in the tower and returns the time of the longest step.
func (r *modelRun) pass(p *picture.Patches) (longest time.Duration, err error) {
	pass, err := r.imageRuns.tower.Begin([]*picture.Patches{p})
	if err != nil {
		return 0, err
	}
	defer pass.Close()
	for done := false; !done; {
		start := time.Now()
		if done, err = pass.Step(); err != nil {
			return 0, err
		}
		longest = max(longest, time.Since(start))
	}
	return longest, nil
}

// report takes medians.
func (s *imageRuns) report(out *ModelReport, sizes [][2]int) {
	for i, size := range sizes {
		p := s.patches[i]
		x := ImageTime{
			Width: size[0], Height: size[1], Patches: p.Rows(), Tokens: p.Tokens(),
			Prepare: measure.Median(s.prepare[i].seconds), Seconds: measure.Median(s.pass[i].seconds), LongestStep: s.longest[i],
			TowerShares: s.pass[i].shares,
		}
		x.PerSecond, x.ProductsGOps = 1/x.Seconds, s.pass[i].ops/x.Seconds/1e9
		x.FirstToken = x.Prepare + x.Seconds + measure.Median(s.answered[i].seconds)
		out.Images = append(out.Images, x)
	}
}
