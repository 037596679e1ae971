package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// setting is a flag that remembers whether it was given, so that a checkpoint's own
// recommendation can stand in where it was not.
type setting[T any] struct {
	value T
	given bool
	kind  string // what help calls the value
	parse func(text string) (T, error)
	check func(T) error
}

// Set implements the flag library's Value.
func (s *setting[T]) Set(text string) error {
	v, err := s.parse(text)
	if err == nil {
		err = s.check(v)
	}
	if err != nil {
		return err
	}
	s.value, s.given = v, true
	return nil
}

// String is the value if it was given: help shows no default for settings, their
// descriptions do.
func (s *setting[T]) String() string {
	if s == nil || !s.given {
		return ""
	}
	return fmt.Sprint(s.value)
}

// Type names the value in help.
func (s *setting[T]) Type() string { return s.kind }

// Unset is as if the flag had not been given.
func (s *setting[T]) Unset() {
	var zero T
	s.value, s.given = zero, false
}

// or is the value, or otherwise if it was not given.
func (s *setting[T]) or(otherwise T) T {
	if s.given {
		return s.value
	}
	return otherwise
}

// number is a setting for a number from lo to hi; the largest float64 is shown as no limit.
func number(lo, hi float64) setting[float64] {
	want := "want a finite number"
	switch {
	case hi < math.MaxFloat64:
		want = fmt.Sprintf("want a number from %v to %v", lo, hi)
	case lo > -math.MaxFloat64:
		want = fmt.Sprintf("want a number, %v or more", lo)
	}
	return setting[float64]{
		kind: "number",
		parse: func(text string) (float64, error) {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return 0, errors.New(want)
			}
			return v, nil
		},
		check: func(v float64) error {
			if v >= lo && v <= hi {
				return nil
			}
			return errors.New(want)
		},
	}
}

// whole is a setting for a whole number from lo to hi; math.MaxInt32 is shown as no limit.
func whole(lo, hi int) setting[int] {
	want := fmt.Sprintf("want a whole number from %d to %d", lo, hi)
	if hi == math.MaxInt32 {
		want = fmt.Sprintf("want a whole number, %d or more", lo)
	}
	return setting[int]{
		kind: "N",
		parse: func(text string) (int, error) {
			v, err := strconv.Atoi(text)
			if err != nil {
				return 0, errors.New(want)
			}
			return v, nil
		},
		check: func(v int) error {
			if v >= lo && v <= hi {
				return nil
			}
			return errors.New(want)
		},
	}
}

// worded is a setting for a whole number from lo to hi, or for a word that stands for one.
func worded(kind string, words map[string]int, lo, hi int) setting[int] {
	s := whole(lo, hi)
	parse, check := s.parse, s.check
	s.kind = kind
	s.parse = func(text string) (int, error) {
		v, ok := words[text]
		if ok {
			return v, nil
		}
		v, err := parse(text)
		if err == nil {
			err = check(v)
		}
		if err != nil {
			list := slices.Sorted(maps.Keys(words))
			return 0, fmt.Errorf("%w, or %s", err, alternatives(list))
		}
		return v, nil
	}
	s.check = func(int) error { return nil } // a word may stand for a number outside
	return s
}

// seedSetting is a setting for a seed.
func seedSetting() setting[uint64] {
	return setting[uint64]{
		kind: "N",
		parse: func(text string) (uint64, error) {
			v, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("want a whole number from 0 to %d", uint64(math.MaxUint64))
			}
			return v, nil
		},
		check: func(uint64) error { return nil },
	}
}

// choice is a setting for one of a few words.
func choice(words ...string) setting[string] {
	return setting[string]{
		kind:  strings.Join(words, "|"),
		parse: func(text string) (string, error) { return text, nil },
		check: func(v string) error {
			if slices.Contains(words, v) {
				return nil
			}
			return fmt.Errorf("want %s", alternatives(words))
		},
	}
}

// alternatives lists words as a sentence does: a, b or c.
func alternatives(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// biases collects ID=VALUE flags.
type biases map[int32]float32

// Set implements the flag library's Value.
func (b biases) Set(text string) error {
	id, value, ok := strings.Cut(text, "=")
	n, errID := strconv.ParseInt(id, 10, 32)
	v, errValue := strconv.ParseFloat(value, 32)
	if !ok || errID != nil || errValue != nil || n < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return errors.New("want a token id, an equals sign and a finite number, such as 42=-5")
	}
	b[int32(n)] = float32(v)
	return nil
}

// String lists the biases by id.
func (b biases) String() string {
	ids := make([]int32, 0, len(b))
	for id := range b {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	parts := make([]string, len(ids))
	for i, id := range ids {
		parts[i] = fmt.Sprintf("%d=%v", id, b[id])
	}
	return strings.Join(parts, " ")
}

// Type names the value in help.
func (b biases) Type() string { return "ID=VALUE" }

// Unset forgets all biases.
func (b biases) Unset() { clear(b) }

// texts collects texts, none of them empty.
type texts []string

// Set implements the flag library's Value.
func (t *texts) Set(text string) error {
	if text == "" {
		return errors.New("want a text that is not empty")
	}
	*t = append(*t, text)
	return nil
}

// String lists the texts in quotes.
func (t *texts) String() string {
	quoted := make([]string, len(*t))
	for i, text := range *t {
		quoted[i] = strconv.Quote(text)
	}
	return strings.Join(quoted, " ")
}

// Type names the value in help.
func (t *texts) Type() string { return "TEXT" }

// Unset forgets all texts.
func (t *texts) Unset() { *t = nil }
