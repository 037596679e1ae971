// Command crosscheck type-checks the packages of a module and their tests for platforms, and
// whatever they import as far as its declarations go, without compiling any of it:
//
//	crosscheck linux/arm64 darwin/arm64
//
// What the compiler would refuse is found in seconds for each platform instead of a minute.
// Whether a program also links there, and what go vet says of it, make cross tells.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

func main() {
	var wg sync.WaitGroup
	failures := make([]error, len(os.Args)-1)
	for i, platform := range os.Args[1:] {
		wg.Go(func() { failures[i] = check(platform) })
	}
	wg.Wait()
	for i, err := range failures {
		fmt.Println(os.Args[1+i])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if errors.Join(failures...) != nil {
		os.Exit(1)
	}
}

// pkg is what go list says of a package.
type pkg struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	DepOnly         bool
	Error           *struct{ Err string }
}

func check(platform string) error {
	system, arch, ok := strings.Cut(platform, "/")
	if !ok {
		return fmt.Errorf("%q: want a platform such as linux/arm64", platform)
	}
	list := exec.Command("go", "list", "-e", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,ImportMap,DepOnly,Error", "./...")
	list.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.StdoutPipe()
	if err != nil {
		return err
	}
	if err := list.Start(); err != nil {
		return err
	}
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	var found []error
	for d := json.NewDecoder(out); ; { // imported before importing
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if strings.HasSuffix(p.ImportPath, ".test") {
			continue // the generated main function of a test
		}
		if p.Error != nil {
			found = append(found, fmt.Errorf("%s: %s: %s", platform, p.ImportPath, p.Error.Err))
		} else if err := p.check(checked, arch); err != nil {
			found = append(found, fmt.Errorf("%s: %w", platform, err))
		}
	}
	return errors.Join(append(found, list.Wait())...)
}

// check adds p to checked.
func (p *pkg) check(checked map[string]*types.Package, arch string) error {
	if checked[p.ImportPath] != nil {
		return nil
	}
	files := token.NewFileSet()
	var syntax []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		syntax = append(syntax, f)
	}
	var found []error
	c := types.Config{
		IgnoreFuncBodies: p.DepOnly, FakeImportC: true, Sizes: types.SizesFor("gc", arch),
		Importer: importer(func(path string) (*types.Package, error) {
			if mapped := p.ImportMap[path]; mapped != "" {
				path = mapped
			}
			if found := checked[path]; found != nil {
				return found, nil
			}
			return nil, fmt.Errorf("%s was not listed", path)
		}),
		Error: func(err error) { found = append(found, err) },
	}
	done, err := c.Check(p.ImportPath, files, syntax, nil)
	checked[p.ImportPath] = done
	if err != nil && !p.DepOnly {
		return errors.Join(found...)
	}
	return nil
}

type importer func(string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }
