// Package flags has values of flags that know whether they were given, groups of flags in help texts, and
// usage errors.
package flags

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Setting is a flag that remembers whether it was given, so that the checkpoint's
// recommendation can replace a missing value.
type Setting[T any] struct {
	Value T
	Given bool
	Kind  string // the value's name in help
	Parse func(text string) (T, error)
	Check func(T) error
}

// Set implements the flag library's Value.
func (s *Setting[T]) Set(text string) error {
	v, err := s.Parse(text)
	if err == nil {
		err = s.Check(v)
	}
	if err != nil {
		return err
	}
	s.Value, s.Given = v, true
	return nil
}

// String is the value if it was given: help shows no default for settings, their
// descriptions do.
func (s *Setting[T]) String() string {
	if s == nil || !s.Given {
		return ""
	}
	return fmt.Sprint(s.Value)
}

// Type names the value in help.
func (s *Setting[T]) Type() string { return s.Kind }

// Unset resets the flag to not given.
func (s *Setting[T]) Unset() {
	var zero T
	s.Value, s.Given = zero, false
}

// Or is the value, or otherwise if it was not given.
func (s *Setting[T]) Or(otherwise T) T {
	if s.Given {
		return s.Value
	}
	return otherwise
}

// Number is a setting for a number from lo to hi; the largest float64 is shown as no limit.
func Number(lo, hi float64) Setting[float64] {
	want := "want a finite number"
	switch {
	case hi < math.MaxFloat64:
		want = fmt.Sprintf("want a number from %v to %v", lo, hi)
	case lo > -math.MaxFloat64:
		want = fmt.Sprintf("want a number, %v or more", lo)
	}
	return Setting[float64]{
		Kind: "number",
		Parse: func(text string) (float64, error) {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return 0, errors.New(want)
			}
			return v, nil
		},
		Check: func(v float64) error {
			if v >= lo && v <= hi {
				return nil
			}
			return errors.New(want)
		},
	}
}

// Whole is a setting for a whole number from lo to hi; math.MaxInt32 is shown as no limit.
func Whole(lo, hi int) Setting[int] {
	want := fmt.Sprintf("want a whole number from %d to %d", lo, hi)
	if hi == math.MaxInt32 {
		want = fmt.Sprintf("want a whole number, %d or more", lo)
	}
	return Setting[int]{
		Kind: "N",
		Parse: func(text string) (int, error) {
			v, err := strconv.Atoi(text)
			if err != nil {
				return 0, errors.New(want)
			}
			return v, nil
		},
		Check: func(v int) error {
			if v >= lo && v <= hi {
				return nil
			}
			return errors.New(want)
		},
	}
}

// Worded is a setting for a whole number from lo to hi, or for a word that stands for one.
func Worded(kind string, words map[string]int, lo, hi int) Setting[int] {
	s := Whole(lo, hi)
	parse, check := s.Parse, s.Check
	s.Kind = kind
	s.Parse = func(text string) (int, error) {
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
			return 0, fmt.Errorf("%w, or %s", err, Alternatives(list))
		}
		return v, nil
	}
	s.Check = func(int) error { return nil } // a word may stand for a number outside
	return s
}

// Seed is a setting for a seed.
func Seed() Setting[uint64] {
	return Setting[uint64]{
		Kind: "N",
		Parse: func(text string) (uint64, error) {
			v, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("want a whole number from 0 to %d", uint64(math.MaxUint64))
			}
			return v, nil
		},
		Check: func(uint64) error { return nil },
	}
}

// List is a setting for one or more values with commas between.
func List[T any](one Setting[T]) Setting[[]T] {
	return Setting[[]T]{
		Kind: one.Kind + "[," + one.Kind + "...]",
		Parse: func(text string) (list []T, err error) {
			for word := range strings.SplitSeq(text, ",") {
				v, err := one.Parse(strings.TrimSpace(word))
				if err == nil {
					err = one.Check(v)
				}
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			return list, nil
		},
		Check: func([]T) error { return nil },
	}
}

// Choice is a setting for one of a few words.
func Choice(words ...string) Setting[string] {
	return Setting[string]{
		Kind:  strings.Join(words, "|"),
		Parse: func(text string) (string, error) { return text, nil },
		Check: func(v string) error {
			if slices.Contains(words, v) {
				return nil
			}
			return fmt.Errorf("want %s", Alternatives(words))
		},
	}
}

// Alternatives lists words as a sentence does: a, b or c.
func Alternatives(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Biases collects ID=VALUE flags.
type Biases map[int32]float32

// Set implements the flag library's Value.
func (b Biases) Set(text string) error {
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
func (b Biases) String() string {
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
func (b Biases) Type() string { return "ID=VALUE" }

// Unset forgets all biases.
func (b Biases) Unset() { clear(b) }

// Texts collects texts, none of them empty.
type Texts []string

// Set implements the flag library's Value.
func (t *Texts) Set(text string) error {
	if text == "" {
		return errors.New("want a text that is not empty")
	}
	*t = append(*t, text)
	return nil
}

// String lists the texts in quotes.
func (t *Texts) String() string {
	quoted := make([]string, len(*t))
	for i, text := range *t {
		quoted[i] = strconv.Quote(text)
	}
	return strings.Join(quoted, " ")
}

// Type names the value in help.
func (t *Texts) Type() string { return "TEXT" }

// Unset forgets all texts.
func (t *Texts) Unset() { *t = nil }
