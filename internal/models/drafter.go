package models

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// drafterFolders are the folders of a drafter inside that of its model.
var drafterFolders = []string{"drafter", "assistant"}

// drafterMarks follow the name of the model in names of published drafters, the preferred kind first.
var drafterMarks = []string{"-dflash2", "-dspark", "-dflash", "-eagle3", "-eagle-3", "-speculator", "-assistant"}

// DrafterMatch says how well a drafter's name, with an organization or without, fits the name of a model: the length of the model's
// name in it, and the place of its kind in the order of preference. ok is false if it is not the name of a drafter for
// that model. The model's name may go on, as those of quantized variants do.
func DrafterMatch(drafter, name string) (length, kind int, ok bool) {
	drafter, name = strings.ToLower(drafter[strings.LastIndexByte(drafter, '/')+1:]), strings.ToLower(name)
	for i, mark := range drafterMarks {
		target, _, found := strings.Cut(drafter, mark)
		if !found {
			continue
		}
		rest, begins := strings.CutPrefix(name, target)
		return len(target), i, begins && target != "" && (rest == "" || strings.ContainsRune("-_.", rune(rest[0]))) && !strings.Contains(rest, mark)
	}
	return 0, 0, false
}

// FindDrafter is the path of the drafter that a model has beside it, "" if there is none: in the folder drafter of its own, or in a
// folder or GGUF file beside it that is named after it. others are paths of further candidates, with names. Of several that
// fit, it is the first of these, with the longest name of a model, of the kind that drafts best. Those that do not fit are in the
// error, which is no reason not to use the model.
func FindDrafter(path, name string, others map[string]string) (string, error) {
	if path == Tiny {
		return "", nil
	}
	list := besideModel(path)
	for at, called := range others {
		list = append(list, candidate{path: at, name: called})
	}
	list = slices.DeleteFunc(list, func(c candidate) bool { return !c.inside && !c.matches(name) })
	if len(list) == 0 {
		return "", nil
	}
	t, err := target(path)
	if err != nil {
		return "", nil // opening the model reports it
	}
	slices.SortFunc(list, func(a, b candidate) int { return a.compare(&b, name) })
	var unfit []error
	for _, c := range list {
		if err := c.fits(t, name); err != nil {
			unfit = append(unfit, fmt.Errorf("drafter %s is not used: %w", c.path, err))
			continue
		}
		return c.path, errors.Join(unfit...)
	}
	return "", errors.Join(unfit...)
}

// candidate is a possible drafter.
type candidate struct {
	path, name string
	inside     bool // in the folder of the model
}

// matches reports whether the name is that of a drafter for the model.
func (c *candidate) matches(model string) bool {
	_, _, ok := DrafterMatch(c.name, model)
	return ok
}

// compare orders candidates, the best first.
func (c *candidate) compare(o *candidate, model string) int {
	if c.inside != o.inside {
		return map[bool]int{true: -1, false: 1}[c.inside]
	}
	a, i, _ := DrafterMatch(c.name, model)
	b, j, _ := DrafterMatch(o.name, model)
	return cmp.Or(b-a, i-j, strings.Compare(c.path, o.path))
}

// OpenDrafter opens the files of a drafter for a model, and checks by their headers that it fits. The caller closes them.
func OpenDrafter(path string, of *checkpoint.Checkpoint) (*checkpoint.Checkpoint, error) {
	files, err := Open(path, "")
	if err != nil {
		return nil, fmt.Errorf("drafter %s: %w", path, err)
	}
	if s, err := model.Survey(of); err == nil { // opening the model reports another error
		if _, err := fit(files, model.TargetOf(s)); err != nil {
			return nil, errors.Join(fmt.Errorf("drafter %s: %w", path, err), files.Close())
		}
	}
	return files, nil
}

// fit surveys a drafter. An error is why it cannot be used for the target.
func fit(files *checkpoint.Checkpoint, t model.Target) (*weights.Survey, error) {
	s, err := model.Fit(files, t)
	switch {
	case err != nil:
		return nil, err
	case len(s.Errors) > 0:
		return nil, s.Errors[0]
	case len(s.Missing) > 0:
		return nil, fmt.Errorf("%d tensors are missing, such as %s", len(s.Missing), s.Missing[0])
	}
	return s, nil
}

// fits is the error of a drafter that cannot be used for the target.
func (c *candidate) fits(t model.Target, name string) error {
	files, err := Open(c.path, "")
	if err != nil {
		return err
	}
	defer files.Close() //nolint:errcheck // it was only read
	s, err := fit(files, t)
	if err != nil {
		return err
	}
	if made := filepath.Base(s.Drafter.Made); s.Drafter.Made != "" && !c.inside {
		if named := made + drafterMarks[0]; !(&candidate{name: named}).matches(name) {
			return fmt.Errorf("it was made for %s", s.Drafter.Made)
		}
	}
	return nil
}

// target is the sizes of a model.
func target(path string) (t model.Target, err error) {
	c, err := Open(path, "")
	if err != nil {
		return t, err
	}
	defer c.Close() //nolint:errcheck // it was only read
	s, err := model.Survey(c)
	if err != nil {
		return t, err
	}
	return model.TargetOf(s), nil
}

// besideModel are the folders and files beside a model, and the folder inside its own, if they exist.
func besideModel(path string) []candidate {
	full, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	var list []candidate
	for _, inside := range drafterFolders {
		if at := filepath.Join(full, inside); isFile(filepath.Join(at, "config.json")) {
			list = append(list, candidate{path: at, inside: true})
		}
	}
	entries, _ := os.ReadDir(filepath.Dir(full)) // the model was found there all the same
	for _, e := range entries {
		at := filepath.Join(filepath.Dir(full), e.Name())
		if at != full && (strings.HasSuffix(at, ".gguf") || isFile(filepath.Join(at, "config.json"))) {
			list = append(list, candidate{path: at, name: strings.TrimSuffix(e.Name(), ".gguf")})
		}
	}
	return list
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
