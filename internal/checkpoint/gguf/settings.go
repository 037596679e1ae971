package gguf

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/dtype"
)

// Settings writes members of a config from metadata, and keeps the first error.
type Settings struct {
	File   *File
	Prefix string // of keys: the architecture and a point
	To     map[string]any
	Err    error
}

// Part is the settings of an object within the config. Its error is to be kept.
func (s *Settings) Part(to map[string]any) *Settings {
	return &Settings{File: s.File, Prefix: s.Prefix, To: maps.Clone(to), Err: s.Err}
}

// Keep keeps the first error.
func (s *Settings) Keep(err error) {
	if s.Err == nil {
		s.Err = err
	}
}

// Whole sets a member to a required number, and returns it. Of a list, with a number for each
// layer, it is the largest: layers without attention have no heads.
func (s *Settings) Whole(key, name string) int {
	list, err := s.File.Wholes(s.Prefix + key)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s%s is an empty list", s.Prefix, key)
	}
	if err != nil {
		s.Keep(err)
		return 0
	}
	n := slices.Max(list)
	s.To[name] = n
	return n
}

// Optional is a number, -1 if it is absent.
func (s *Settings) Optional(key string) int {
	if !s.File.Has(s.Prefix + key) {
		return -1
	}
	n, err := s.File.Whole(s.Prefix + key)
	s.Keep(err)
	return n
}

// Number sets a member to a number that must be there, as precise as the file has it.
func (s *Settings) Number(key, name string) float64 {
	x, err := s.File.Number(s.Prefix + key)
	if err == nil && (math.IsNaN(x) || math.IsInf(x, 0)) {
		err = fmt.Errorf("%s%s is %g, want a finite number", s.Prefix, key, x)
	}
	s.Keep(err)
	s.To[name] = float32(x)
	return x
}

// Rotary reads how many of dim dimensions rotate, as partial_rotary_factor, if the file has the number.
func (s *Settings) Rotary(dim int) {
	n := s.Optional("rope.dimension_count")
	if n < 0 || dim <= 0 {
		return
	}
	part := float64(n) / float64(dim)
	if int(part*float64(dim)) < n {
		part = math.Nextafter(part, 2)
	}
	s.To["partial_rotary_factor"] = part
}

// maxBlocks is the maximum number of blocks of a model.
const maxBlocks = 1 << 12

// Each is a number for each block. A single number holds for all blocks. After an error, all are 0.
func (s *Settings) Each(key string, blocks int) []int {
	if blocks < 1 || blocks > maxBlocks {
		s.Keep(fmt.Errorf("the model has %d blocks, want a number from 1 to %d", blocks, maxBlocks))
		return nil
	}
	list, err := s.File.Wholes(s.Prefix + key)
	if err == nil && len(list) == 1 {
		list = slices.Repeat(list, blocks)
	}
	if err == nil && len(list) != blocks {
		err = fmt.Errorf("%s%s has %d numbers, want one for each of %d blocks", s.Prefix, key, len(list), blocks)
	}
	if err != nil {
		s.Keep(err)
		return make([]int, blocks)
	}
	return list
}

// Divisors is the tensor of the divisors of frequencies, one for each pair of a head.
const Divisors = "rope_freqs.weight"

// Turned reads how many of the first pairs of a head rotate, as partial_rotary_factor, if the file has Divisors: their divisor is 1. The
// divisors of the other pairs are so large that no rotation is left.
func (s *Settings) Turned(pairs int) {
	t := s.File.Tensor(Divisors)
	if t == nil {
		return
	}
	m, err := t.Matrix()
	if err == nil && (m.Type != dtype.F32 || m.Format != dtype.Plain || len(t.Shape) != 1 || m.Cols != pairs || pairs < 1) {
		err = fmt.Errorf("it is %v of shape %v, want F32 of shape [%d], a number for each pair of a head", m.Type, t.Shape, pairs)
	}
	if err != nil {
		s.Keep(fmt.Errorf("tensor %s: %w", Divisors, err))
		return
	}
	list, turned := make([]float32, pairs), 0
	dtype.ToF32(list, dtype.F32, m.Data)
	for turned < pairs && list[turned] == 1 {
		turned++
	}
	for _, d := range list[turned:] {
		if !(d >= 1e20) {
			s.Keep(fmt.Errorf("tensor %s has the divisor %g, want ones followed by numbers above 1e20", Divisors, d))
			return
		}
	}
	s.To["partial_rotary_factor"] = float64(turned) / float64(pairs)
}
