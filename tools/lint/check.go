package main

import (
	"errors"
	"fmt"
	"go/types"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/analysis"
)

// A checker has analyzers look at packages of one platform. Facts of a package, such as that a function
// never returns, are found when it is loaded, so before those of packages that import it; all else of
// ours is looked at beside the loading of what follows.
type checker struct {
	platform  string
	deep      bool
	analyzers []*analysis.Analyzer
	facts     []*analysis.Analyzer // those with facts, of analyzers and of what they require
	*loader
	objects  map[objectFact]analysis.Fact
	packages map[packageFact]analysis.Fact

	wg    sync.WaitGroup
	mu    sync.Mutex
	found []error
}

type objectFact struct {
	of   types.Object
	kind reflect.Type
}

type packageFact struct {
	of   *types.Package
	kind reflect.Type
}

// newChecker looks at packages with analyzers. deep: at those that are not ours too, for facts alone.
func newChecker(f *files, platform string, analyzers []*analysis.Analyzer, deep bool) *checker {
	c := &checker{
		platform: platform, deep: deep, analyzers: analyzers, loader: newLoader(f, platform),
		objects: map[objectFact]analysis.Fact{}, packages: map[packageFact]analysis.Fact{},
	}
	seen := map[*analysis.Analyzer]bool{}
	var visit func([]*analysis.Analyzer)
	visit = func(list []*analysis.Analyzer) {
		for _, a := range list {
			if seen[a] {
				continue
			}
			seen[a] = true
			visit(a.Requires)
			if len(a.FactTypes) > 0 {
				c.facts = append(c.facts, a)
			}
		}
	}
	visit(analyzers)
	return c
}

// processors is how many packages are looked at at once, on all platforms.
var processors = make(chan struct{}, runtime.GOMAXPROCS(0))

// module looks at the packages of the module in dir that wanted says, and returns what is wrong with them.
// A package with tests is looked at once, together with them.
func (c *checker) module(dir string, wanted func(*listed) bool) error {
	packages, err := list(dir, c.platform)
	if err != nil {
		return err
	}
	c.found, c.others = nil, map[string]*loaded{}
	tested, needed := map[string]bool{}, map[string]bool{}
	for _, p := range packages {
		if path, test, _ := strings.Cut(p.ImportPath, " "); test == "["+path+".test]" {
			tested[path] = true
		}
	}
	for _, p := range slices.Backward(packages) { // importing before imported
		p.wanted = !p.DepOnly && !tested[p.ImportPath] && wanted(p)
		if p.wanted || needed[p.ImportPath] {
			needed[p.ImportPath] = c.deep || !p.DepOnly
			for _, path := range p.Imports {
				needed[path] = true
			}
		}
	}
	for _, p := range packages {
		if p.Error != nil {
			c.fail(errors.New(p.Error.Err))
		} else if c.find(p.ImportPath) == nil {
			c.look(p, needed[p.ImportPath], !p.DepOnly && !tested[p.ImportPath])
		}
	}
	c.wg.Wait()
	slices.SortFunc(c.found, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if c.platform != native {
		for i, err := range c.found {
			c.found[i] = fmt.Errorf("%s: %w", c.platform, err)
		}
	}
	return errors.Join(c.found...)
}

// look loads a package, finds its facts if others need them, and starts to look at it if that is wanted.
func (c *checker) look(p *listed, facts, bodies bool) {
	loaded, err := c.load(p, facts || bodies)
	if err != nil {
		c.fail(err)
		return
	}
	if !facts || loaded.info == nil {
		loaded.forget()
		return
	}
	r := &run{checker: c, loaded: loaded, results: map[*analysis.Analyzer]any{}}
	r.all(c.facts)
	if !p.wanted {
		loaded.forget()
		return
	}
	c.wg.Go(func() {
		processors <- struct{}{}
		defer func() { <-processors }()
		r.all(c.analyzers)
		loaded.forget()
	})
}

func (c *checker) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found = append(c.found, err)
}

// A run is what analyzers make of a package. Of one that is not wanted they report nothing.
type run struct {
	*checker
	*loaded
	results map[*analysis.Analyzer]any
}

func (r *run) all(analyzers []*analysis.Analyzer) {
	for _, a := range analyzers {
		if _, err := r.analyze(a); err != nil && r.listed.wanted {
			r.fail(fmt.Errorf("%s: %s: %w", r.listed.ImportPath, a, err))
		}
	}
}

// analyze runs an analyzer and those that it requires, each once.
func (r *run) analyze(a *analysis.Analyzer) (any, error) {
	if result, done := r.results[a]; done {
		return result, nil
	}
	required := map[*analysis.Analyzer]any{}
	for _, other := range a.Requires {
		result, err := r.analyze(other)
		if err != nil {
			return nil, err
		}
		required[other] = result
	}
	p := r.listed
	pass := &analysis.Pass{
		Analyzer: a, Fset: r.files.set, Files: r.syntax, Pkg: r.types, TypesInfo: r.info, TypesSizes: r.sizes,
		OtherFiles:   under(p.Dir, p.SFiles),
		IgnoredFiles: under(p.Dir, slices.Concat(p.IgnoredGoFiles, p.IgnoredOtherFiles)),
		Module:       &analysis.Module{}, ResultOf: required, ReadFile: os.ReadFile,
		Report: func(d analysis.Diagnostic) {
			if r.listed.wanted {
				at := r.files.set.Position(d.Pos)
				if here, err := os.Getwd(); err == nil {
					if short, err := filepath.Rel(here, at.Filename); err == nil {
						at.Filename = short
					}
				}
				r.fail(fmt.Errorf("%s: %s", at, d.Message))
			}
		},
		ImportObjectFact: func(o types.Object, f analysis.Fact) bool {
			return take(f, r.objects[objectFact{o, reflect.TypeOf(f)}])
		},
		ExportObjectFact: func(o types.Object, f analysis.Fact) { r.objects[objectFact{o, reflect.TypeOf(f)}] = f },
		ImportPackageFact: func(p *types.Package, f analysis.Fact) bool {
			return take(f, r.packages[packageFact{p, reflect.TypeOf(f)}])
		},
		ExportPackageFact: func(f analysis.Fact) { r.packages[packageFact{r.types, reflect.TypeOf(f)}] = f },
		AllObjectFacts: func() (all []analysis.ObjectFact) {
			for k, f := range r.objects {
				if r.listed.wanted && has(a, k.kind) {
					all = append(all, analysis.ObjectFact{Object: k.of, Fact: f})
				}
			}
			return all
		},
		AllPackageFacts: func() (all []analysis.PackageFact) {
			for k, f := range r.packages {
				if r.listed.wanted && has(a, k.kind) {
					all = append(all, analysis.PackageFact{Package: k.of, Fact: f})
				}
			}
			return all
		},
	}
	if p.Module != nil {
		pass.Module.GoVersion = p.Module.GoVersion
	}
	result, err := a.Run(pass)
	if err == nil {
		r.results[a] = result
	}
	return result, err
}

// take copies a fact, if there is one.
func take(to, from analysis.Fact) bool {
	if from != nil {
		reflect.ValueOf(to).Elem().Set(reflect.ValueOf(from).Elem())
	}
	return from != nil
}

// has tells whether facts of a kind are those of an analyzer.
func has(a *analysis.Analyzer, kind reflect.Type) bool {
	return slices.ContainsFunc(a.FactTypes, func(f analysis.Fact) bool { return reflect.TypeOf(f) == kind })
}
