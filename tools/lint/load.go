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
	"runtime"
	"slices"
	"strings"
	"sync"
)

// native is the platform of this machine.
const native = runtime.GOOS + "/" + runtime.GOARCH

// listed is what go list says of a package.
type listed struct {
	ImportPath, Name, Dir                              string
	GoFiles, SFiles, IgnoredGoFiles, IgnoredOtherFiles []string
	Imports                                            []string
	ImportMap                                          map[string]string
	DepOnly, Standard                                  bool
	Module                                             *struct {
		Main      bool
		GoVersion string
	}
	Error *struct{ Err string }

	wanted bool // what analyzers say is reported
}

func (p *listed) ours() bool { return p.Module != nil && p.Module.Main }

// list returns the packages of the module in dir and all that they import, imported before importing.
func list(dir, platform string) ([]*listed, error) {
	target, tags, _ := strings.Cut(platform, ":")
	system, arch, ok := strings.Cut(target, "/")
	if !ok {
		return nil, fmt.Errorf("%q: want a platform such as linux/arm64", platform)
	}
	c := exec.Command("go", "list", "-e", "-deps", "-test", "-tags="+tags,
		"-json=ImportPath,Name,Dir,GoFiles,SFiles,IgnoredGoFiles,IgnoredOtherFiles,Imports,ImportMap,DepOnly,Standard,Module,Error", "./...")
	c.Dir = dir
	c.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	var packages []*listed
	for d := json.NewDecoder(out); ; {
		p := new(listed)
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return packages, c.Wait()
		} else if err != nil {
			return nil, errors.Join(err, c.Wait())
		}
		if !strings.HasSuffix(p.ImportPath, ".test") { // the generated main function of a test
			packages = append(packages, p)
		}
	}
}

// A loaded package has its types, and info if bodies of functions were read.
type loaded struct {
	listed *listed
	syntax []*ast.File
	types  *types.Package
	info   *types.Info
	sizes  types.Sizes
}

// A loader loads packages for one platform.
type loader struct {
	files    *files
	sizes    types.Sizes
	standard map[string]*loaded // which are the same in every module
	others   map[string]*loaded
}

func newLoader(f *files, platform string) *loader {
	_, arch, _ := strings.Cut(platform, "/")
	arch, _, _ = strings.Cut(arch, ":")
	return &loader{files: f, sizes: types.SizesFor("gc", arch), standard: map[string]*loaded{
		"unsafe": {listed: &listed{ImportPath: "unsafe", Standard: true}, types: types.Unsafe},
	}}
}

func (l *loader) find(path string) *loaded {
	if p := l.standard[path]; p != nil {
		return p
	}
	return l.others[path]
}

// load parses a package whose imports are loaded, and checks its types: of declarations or of everything.
// A package that is not ours may have errors: they are another module's affair, and it has no info then.
func (l *loader) load(p *listed, bodies bool) (*loaded, error) {
	done := &loaded{listed: p, sizes: l.sizes}
	if bodies {
		done.info = &types.Info{
			Types: map[ast.Expr]types.TypeAndValue{}, Instances: map[*ast.Ident]types.Instance{},
			Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Implicits: map[ast.Node]types.Object{},
			Selections: map[*ast.SelectorExpr]*types.Selection{}, Scopes: map[ast.Node]*types.Scope{},
			FileVersions: map[*ast.File]string{},
		}
	}
	for _, name := range under(p.Dir, p.GoFiles) {
		f, err := l.files.parse(name)
		if err != nil {
			return nil, err
		}
		done.syntax = append(done.syntax, f)
	}
	var found []error
	c := types.Config{
		IgnoreFuncBodies: !bodies, FakeImportC: true, Sizes: l.sizes,
		Importer: importer(func(path string) (*types.Package, error) {
			if mapped := p.ImportMap[path]; mapped != "" {
				path = mapped
			}
			imported := l.find(path)
			if imported == nil {
				return nil, fmt.Errorf("%s was not listed", path)
			}
			return imported.types, nil
		}),
		Error: func(err error) { found = append(found, err) },
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		c.GoVersion = "go" + p.Module.GoVersion
	}
	var err error
	done.types, err = c.Check(p.ImportPath, l.files.set, done.syntax, done.info)
	if p.Standard {
		l.standard[p.ImportPath] = done
	} else {
		l.others[p.ImportPath] = done
	}
	if err != nil {
		if p.ours() {
			return nil, errors.Join(found...)
		}
		done.info = nil
	}
	return done, nil
}

// forget lets go of what only analyzers need of a package.
func (p *loaded) forget() { p.syntax, p.info = nil, nil }

// files are those of all platforms and modules. Most are the same in each: a file is parsed once.
type files struct {
	set    *token.FileSet
	parsed sync.Map // of func() (*ast.File, error), by name
}

func newFiles() *files { return &files{set: token.NewFileSet()} }

func (f *files) parse(name string) (*ast.File, error) {
	first := sync.OnceValues(func() (*ast.File, error) {
		return parser.ParseFile(f.set, name, nil, parser.SkipObjectResolution|parser.ParseComments)
	})
	once, _ := f.parsed.LoadOrStore(name, first)
	return once.(func() (*ast.File, error))()
}

// foreign tells packages with files that this machine does not compile.
func (p *listed) foreign() bool {
	return slices.ContainsFunc(p.GoFiles, func(name string) bool {
		is, err := build.Default.MatchFile(p.Dir, name)
		return err != nil || !is
	})
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
