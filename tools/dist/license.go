package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// terms are the names of files that say on what terms a module may be passed on.
var terms = regexp.MustCompile(`(?i)^(licen[cs]e|notice|copying|patents)(\.(txt|md))?$`)

// writeLicenses writes the licenses of Go and of every module in a build with these tags, which
// redistribution requires. A module without a license is an error.
func writeLicenses(file string, env []string, tags string) error {
	list := exec.Command("go", "list", "-deps", "-tags", tags, "-f", `{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{"\t"}}{{.Dir}}{{end}}{{end}}`, "./cmd/foretoken")
	list.Env = env
	modules, err := list.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	lines := slices.Compact(slices.Sorted(strings.FieldsFuncSeq(string(modules), func(r rune) bool { return r == '\n' })))
	var text strings.Builder
	text.WriteString("foretoken is built of the following, whose licenses are below.\n")
	for _, line := range append([]string{"Go\t" + strings.TrimSpace(string(root))}, lines...) {
		name, dir, _ := strings.Cut(line, "\t")
		if err := appendTerms(&text, name, dir); err != nil {
			return err
		}
	}
	return os.WriteFile(file, []byte(text.String()), 0o600)
}

// appendTerms adds the files of a module's folder that state its terms.
func appendTerms(text *strings.Builder, name, dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, f := range files {
		if !terms.MatchString(f.Name()) || f.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(text, "\n%s\n%s: %s\n\n%s\n", strings.Repeat("=", 80), strings.TrimSpace(name), f.Name(), strings.TrimSpace(string(data)))
		found = true
	}
	if !found {
		return errors.New(name + " has no license to pass on")
	}
	return nil
}
