// Command lint is the linter of this repository, for go vet -vettool: what go vet checks, what
// staticcheck checks, unchecked errors, unused code, and comparisons of errors. As a vet tool it
// shares go's cache of compiled packages and reads the standard library from there, which
// makes it several times as fast as a linter that loads everything from source.
//
// A finding is accepted by a comment at the end of its line, with the reason:
//
//	defer f.Close() //nolint:errcheck // read only
package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/kisielk/errcheck/errcheck"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/analysis/unitchecker"
	"honnef.co/go/tools/analysis/facts/deprecated"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/quickfix"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
	"honnef.co/go/tools/unused"
)

func main() {
	list := []*analysis.Analyzer{
		under("errcheck", errcheck.Analyzer), under("errorlint", comparisons), under("unused", unusedCode), acceptances,
	}
	for _, a := range vet.Suite {
		list = append(list, under("govet", a))
	}
	for _, set := range [][]*lint.Analyzer{staticcheck.Analyzers, simple.Analyzers, stylecheck.Analyzers, quickfix.Analyzers} {
		for _, a := range set {
			if !wantsDependencies(a.Analyzer) {
				list = append(list, under("staticcheck", a.Analyzer))
			}
		}
	}
	unitchecker.Main(list...)
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

// under returns an analyzer that reports nothing in generated files, and nothing in lines
// that say //nolint:name.
func under(name string, a *analysis.Analyzer) *analysis.Analyzer {
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
		if strings.HasSuffix(pass.Pkg.Path(), ".test") {
			return nil, nil // the main package that go test writes
		}
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
			if o.Kind == "field" && strings.Contains(assembly, "_"+o.Name+"(") {
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
