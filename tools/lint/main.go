// Command lint is the linter of this repository: what go vet checks, what staticcheck checks, unchecked
// errors, unused code, and comparisons of errors. It looks at the packages of modules, with their tests, as
// this machine compiles them; and at the first module's as other platforms do, where it checks types
// and has vet look at packages with files that this machine does not compile:
//
//	lint . tools -- linux/arm64 darwin/arm64 linux/amd64:noasm
//
// Build tags follow a colon. Everything is read from source, once for all platforms, and nothing is
// compiled: from an empty cache that takes a fraction of what go vet takes, which starts a process
// for each package. Of packages that are not ours other platforms read declarations only. Whether a
// program also links there, make cross tells.
//
// A finding is accepted by a comment at the end of its line, with the reason:
//
//	defer f.Close() //nolint:errcheck // read only
package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/kisielk/errcheck/errcheck"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/suite/vet"
	"honnef.co/go/tools/analysis/facts/deprecated"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/quickfix"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
	"honnef.co/go/tools/unused"
)

func main() {
	modules, platforms := os.Args[1:], []string(nil)
	if i := slices.Index(modules, "--"); i >= 0 {
		modules, platforms = modules[:i], modules[i+1:]
	}
	if len(modules) == 0 {
		fmt.Fprintln(os.Stderr, "want lint MODULE … [-- PLATFORM …]")
		os.Exit(2)
	}
	failed := false
	for i, err := range check(modules, platforms) {
		fmt.Println(slices.Concat(modules, platforms)[i])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// check returns what is wrong with each module, and with the first on each platform.
func check(modules, platforms []string) []error {
	f := newFiles()
	failures := make([]error, len(modules)+len(platforms))
	var wg sync.WaitGroup
	wg.Go(func() {
		c := newChecker(f, native, everything(), true)
		for i, dir := range modules {
			failures[i] = c.module(dir, func(*listed) bool { return true })
		}
	})
	for i, platform := range platforms {
		wg.Go(func() {
			failures[len(modules)+i] = newChecker(f, platform, suite(), false).module(modules[0], (*listed).foreign)
		})
	}
	wg.Wait()
	return failures
}

// suite is what go vet checks.
func suite() (list []*analysis.Analyzer) {
	for _, a := range vet.Suite {
		list = append(list, accepting("govet", a))
	}
	return list
}

// everything is suite and all else.
func everything() []*analysis.Analyzer {
	list := append(suite(), accepting("errcheck", errcheck.Analyzer), accepting("errorlint", comparisons), accepting("unused", unusedCode), acceptances)
	for _, set := range [][]*lint.Analyzer{staticcheck.Analyzers, simple.Analyzers, stylecheck.Analyzers, quickfix.Analyzers} {
		for _, a := range set {
			if !wantsDependencies(a.Analyzer) {
				list = append(list, accepting("staticcheck", a.Analyzer))
			}
		}
	}
	return list
}

// wantsDependencies tells analyzers that need the bodies of all functions of all packages
// below, the standard library included: they cost more than all others together.
func wantsDependencies(a *analysis.Analyzer) bool {
	if len(a.FactTypes) > 0 && a != deprecated.Analyzer {
		return true
	}
	return slices.ContainsFunc(a.Requires, wantsDependencies)
}

var accepted = regexp.MustCompile(`^//nolint(?::([\w,]+))?(?: // (.+))?$`)

// accepting returns an analyzer that reports nothing in generated files, and nothing in lines
// that say //nolint:name.
func accepting(name string, a *analysis.Analyzer) *analysis.Analyzer {
	b := *a
	b.Run = func(pass *analysis.Pass) (any, error) {
		p := *pass
		p.Report = func(d analysis.Diagnostic) {
			if !silent(pass, name, d.Pos) {
				d.Message = name + ": " + d.Message
				pass.Report(d)
			}
		}
		return a.Run(&p)
	}
	return &b
}

func silent(pass *analysis.Pass, name string, at token.Pos) bool {
	for _, file := range pass.Files {
		if at < file.FileStart || at > file.FileEnd {
			continue
		}
		if ast.IsGenerated(file) {
			return true
		}
		for _, group := range file.Comments {
			for _, c := range group.List {
				m := accepted.FindStringSubmatch(c.Text)
				if m != nil && pass.Fset.Position(c.Pos()).Line == pass.Fset.Position(at).Line && slices.Contains(strings.Split(m[1], ","), name) {
					return true
				}
			}
		}
	}
	return false
}

// acceptances are the comments that accept findings: each names what, and says why.
var acceptances = &analysis.Analyzer{
	Name: "acceptances", Doc: "nolint comments name a linter and give a reason",
	Run: func(pass *analysis.Pass) (any, error) {
		known := []string{"errcheck", "errorlint", "govet", "staticcheck", "unused"}
		for _, file := range pass.Files {
			for _, group := range file.Comments {
				for _, c := range group.List {
					if !strings.HasPrefix(c.Text, "//nolint") {
						continue
					}
					m := accepted.FindStringSubmatch(c.Text)
					if m == nil || m[1] == "" || m[2] == "" {
						pass.Reportf(c.Pos(), "want //nolint:linter // reason")
						continue
					}
					for name := range strings.SplitSeq(m[1], ",") {
						if !slices.Contains(known, name) {
							pass.Reportf(c.Pos(), "%s is not one of %v", name, known)
						}
					}
				}
			}
		}
		return nil, nil
	},
}

// unusedCode reports what unused.Analyzer finds: it only returns it.
var unusedCode = &analysis.Analyzer{
	Name: "unused", Doc: "unused code", Requires: []*analysis.Analyzer{unused.Analyzer.Analyzer},
	Run: func(pass *analysis.Pass) (any, error) {
		found, _ := pass.ResultOf[unused.Analyzer.Analyzer].(unused.Result)
		assembly := ""
		for _, name := range slices.Concat(pass.OtherFiles, pass.IgnoredFiles) {
			if strings.HasSuffix(name, ".s") {
				text, err := os.ReadFile(name)
				if err != nil {
					return nil, err
				}
				assembly += string(text)
			}
		}
		for _, o := range found.Unused {
			name := "_" + o.Name
			if o.Kind == "field" && (strings.Contains(assembly, name+"(") || strings.Contains(assembly, name+"+")) {
				continue // by its name in go_asm.h
			}
			for _, file := range pass.Files {
				f := pass.Fset.File(file.FileStart)
				if f.Name() == o.Position.Filename {
					pass.Reportf(f.LineStart(o.Position.Line), "%s %s is unused", o.Kind, o.Name)
				}
			}
		}
		return nil, nil
	},
}

// comparisons reports errors that are compared by identity: a wrapped one would not be equal.
// Readers return io.EOF itself, as they promise.
var comparisons = &analysis.Analyzer{
	Name: "comparisons", Doc: "errors are compared with errors.Is and errors.As",
	Run: func(pass *analysis.Pass) (any, error) {
		failure, _ := types.Universe.Lookup("error").Type().Underlying().(*types.Interface)
		is := func(e ast.Expr) bool {
			tv := pass.TypesInfo.Types[e]
			if sel, ok := e.(*ast.SelectorExpr); ok && sel.Sel.Name == "EOF" {
				return false
			}
			return !tv.IsNil() && tv.Type != nil && types.IsInterface(tv.Type) && types.Implements(tv.Type, failure)
		}
		for _, file := range pass.Files {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					return n.Recv == nil || n.Name.Name != "Is" // what errors.Is calls
				case *ast.BinaryExpr:
					if (n.Op == token.EQL || n.Op == token.NEQ) && is(n.X) && is(n.Y) {
						pass.Reportf(n.OpPos, "compare errors with errors.Is")
					}
				case *ast.TypeAssertExpr:
					if n.Type != nil && is(n.X) {
						pass.Reportf(n.Pos(), "take errors apart with errors.As")
					}
				case *ast.SwitchStmt:
					if n.Tag != nil && is(n.Tag) {
						pass.Reportf(n.Pos(), "compare errors with errors.Is")
					}
				}
				return true
			})
		}
		return nil, nil
	},
}
