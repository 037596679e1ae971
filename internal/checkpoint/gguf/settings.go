package gguf

import (
	"fmt"
	"maps"
	"math"
	"slices"
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
