// Command crosscheck checks the types of a module's packages and of their tests for platforms, and
// vets those that differ from this machine's, without compiling anything:
//
//	crosscheck linux/arm64 darwin/arm64 linux/amd64:noasm
//
// Build tags follow a colon. Of imported packages only declarations are read, so what the
// compiler would refuse and what go vet would report is found in seconds for each platform
// instead of a minute. Whether a program also links there, make cross tells.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/packages"
)

func main() {
	f := newFiles()
	var wg sync.WaitGroup
	failures := make([]error, len(os.Args)-1)
	for i, platform := range os.Args[1:] {
		wg.Go(func() { failures[i] = f.check(platform) })
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

// listed is what go list says of a package.
type listed struct {
	ImportPath, Name, Dir           string
	GoFiles, SFiles, IgnoredGoFiles []string
	ImportMap                       map[string]string
	DepOnly                         bool
	Error                           *struct{ Err string }
}

func (f *files) check(platform string) error {
	target, tags, _ := strings.Cut(platform, ":")
	system, arch, ok := strings.Cut(target, "/")
	if !ok {
		return fmt.Errorf("%q: want a platform such as linux/arm64", platform)
	}
	list := exec.Command("go", "list", "-e", "-deps", "-test", "-tags="+tags,
		"-json=ImportPath,Name,Dir,GoFiles,SFiles,IgnoredGoFiles,ImportMap,DepOnly,Error", "./...")
	list.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.StdoutPipe()
	if err != nil {
		return err
	}
	if err := list.Start(); err != nil {
		return err
	}
	l := loader{files: f, sizes: types.SizesFor("gc", arch), loaded: map[string]*packages.Package{
		"unsafe": {PkgPath: "unsafe", Types: types.Unsafe},
	}}
	var found []error
	for d := json.NewDecoder(out); ; { // imported before importing
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if strings.HasSuffix(p.ImportPath, ".test") {
			continue // the generated main function of a test
		}
		if p.Error != nil {
			found = append(found, errors.New(p.Error.Err))
		} else if err := l.load(&p); err != nil {
			found = append(found, err)
		}
	}
	found = append(found, list.Wait())
	if errors.Join(found...) == nil {
		found = l.vet()
	}
	for i, err := range found {
		if err != nil {
			found[i] = fmt.Errorf("%s: %w", platform, err)
		}
	}
	return errors.Join(found...)
}

// A loader holds the packages of one platform.
type loader struct {
	files  *files
	sizes  types.Sizes
	loaded map[string]*packages.Package
	ours   []*packages.Package
	vetted []*packages.Package // those of ours with files that this machine does not compile
}

// load parses a package whose imports are loaded, and checks its types.
func (l *loader) load(p *listed) error {
	if l.loaded[p.ImportPath] != nil {
		return nil
	}
	done := &packages.Package{
		ID: p.ImportPath, PkgPath: p.ImportPath, Name: p.Name, Fset: l.files.set, TypesSizes: l.sizes,
		OtherFiles: under(p.Dir, p.SFiles), IgnoredFiles: under(p.Dir, p.IgnoredGoFiles), Imports: map[string]*packages.Package{},
		Module: &packages.Module{Main: !p.DepOnly},
	}
	mode := parser.SkipObjectResolution
	if !p.DepOnly {
		mode |= parser.ParseComments
		done.TypesInfo = &types.Info{
			Types: map[ast.Expr]types.TypeAndValue{}, Instances: map[*ast.Ident]types.Instance{},
			Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Implicits: map[ast.Node]types.Object{},
			Selections: map[*ast.SelectorExpr]*types.Selection{}, Scopes: map[ast.Node]*types.Scope{},
			FileVersions: map[*ast.File]string{},
		}
	}
	for _, name := range under(p.Dir, p.GoFiles) {
		f, err := l.files.parse(name, mode)
		if err != nil {
			return err
		}
		done.Syntax = append(done.Syntax, f)
	}
	var found []error
	c := types.Config{
		IgnoreFuncBodies: p.DepOnly, FakeImportC: true, Sizes: l.sizes,
		Importer: importer(func(path string) (*types.Package, error) {
			if mapped := p.ImportMap[path]; mapped != "" {
				path = mapped
			}
			imported := l.loaded[path]
			if imported == nil {
				return nil, fmt.Errorf("%s was not listed", path)
			}
			if slices.Contains(l.ours, imported) {
				done.Imports[path] = imported
			}
			return imported.Types, nil
		}),
		Error: func(err error) { found = append(found, err) },
	}
	var err error
	done.Types, err = c.Check(p.ImportPath, l.files.set, done.Syntax, done.TypesInfo)
	l.loaded[p.ImportPath] = done
	if p.DepOnly {
		return nil // another module's affair
	}
	l.ours = append(l.ours, done)
	if slices.ContainsFunc(p.GoFiles, func(name string) bool { return foreign(p.Dir, name) }) {
		l.vetted = append(l.vetted, done)
	}
	if err != nil {
		return errors.Join(found...)
	}
	return nil
}

// files are those of all platforms. Most are the same on each: a file is parsed once, with comments
// if it is ours.
type files struct {
	set    *token.FileSet
	parsed sync.Map // of func() (*ast.File, error), by file
}

type file struct {
	name string
	mode parser.Mode
}

func newFiles() *files { return &files{set: token.NewFileSet()} }

func (f *files) parse(name string, mode parser.Mode) (*ast.File, error) {
	first := sync.OnceValues(func() (*ast.File, error) { return parser.ParseFile(f.set, name, nil, mode) })
	once, _ := f.parsed.LoadOrStore(file{name, mode}, first)
	return once.(func() (*ast.File, error))()
}

// foreign tells files that this machine does not compile: make lint does not see them.
func foreign(dir, name string) bool {
	native, err := build.Default.MatchFile(dir, name)
	return err != nil || !native
}

// vet returns what go vet would say.
func (l *loader) vet() []error {
	graph, err := checker.Analyze(vet.Suite, l.vetted, nil)
	if err != nil {
		return []error{err}
	}
	var found []error
	for _, action := range graph.Roots {
		found = append(found, action.Err)
		for _, d := range action.Diagnostics {
			found = append(found, fmt.Errorf("%s: %s: %s", l.files.set.Position(d.Pos), action.Analyzer, d.Message))
		}
	}
	return found
}

func under(dir string, names []string) []string {
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = filepath.Join(dir, name)
	}
	return paths
}

type importer func(string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }
