// The race detector has other tests, and would compile the imports of these for nothing.
//go:build !race

package foretoken_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Packages without cycles among their files: no file uses one that uses it, directly or indirectly.
var orderedPackages = []string{".", "internal/engine"}

func TestFilesUseEachOtherOneWay(t *testing.T) {
	exported := map[string]string{} // package → file with its types
	for line := range strings.Lines(goCommand(t, ".", nil, "list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", ".")) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		exported[name] = file
	}
	for _, dir := range orderedPackages {
		uses := fileUses(t, dir, exported)
		if len(uses) < 5 {
			t.Errorf("%s: %d files use others, want a package of several files", dir, len(uses))
		}
		if cycle := findCycle(uses); cycle != nil {
			t.Errorf("%s: files use each other in a circle: %s", dir, strings.Join(cycle, " → "))
		}
	}
}

// fileUses returns the files of a package that each of its files uses: their functions, methods, types,
// fields, constants and variables.
func fileUses(t *testing.T, dir string, exported map[string]string) map[string][]string {
	t.Helper()
	files := token.NewFileSet()
	var parsed []*ast.File
	for name := range strings.FieldsSeq(goCommand(t, dir, nil, "list", "-f", `{{join .GoFiles " "}}`)) {
		file, err := parser.ParseFile(files, filepath.Join(dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(files, "gc", func(name string) (io.ReadCloser, error) { return os.Open(exported[name]) })}
	pkg, err := config.Check(path.Join(module, dir), files, parsed, info)
	if err != nil {
		t.Fatal(err)
	}
	in := func(at token.Pos) string { return filepath.Base(files.Position(at).Filename) }
	uses := map[string][]string{}
	for id, object := range info.Uses {
		field, _ := object.(*types.Var)
		_, method := object.(*types.Func)
		if object.Pkg() != pkg || object.Parent() != pkg.Scope() && !method && (field == nil || !field.IsField()) {
			continue
		}
		if from, to := in(id.Pos()), in(object.Pos()); from != to && !slices.Contains(uses[from], to) {
			uses[from] = append(uses[from], to)
		}
	}
	return uses
}

// findCycle returns files of which each uses the next and the last is the first, nil if there are none.
func findCycle(uses map[string][]string) []string {
	var way []string
	done := map[string]bool{}
	var follow func(file string) []string
	follow = func(file string) []string {
		if at := slices.Index(way, file); at >= 0 {
			return append(slices.Clone(way[at:]), file)
		}
		if done[file] {
			return nil
		}
		way = append(way, file)
		for _, next := range uses[file] {
			if cycle := follow(next); cycle != nil {
				return cycle
			}
		}
		way, done[file] = way[:len(way)-1], true
		return nil
	}
	for file := range uses {
		if cycle := follow(file); cycle != nil {
			return cycle
		}
	}
	return nil
}

func TestCyclesAreFound(t *testing.T) {
	if cycle := findCycle(map[string][]string{"a": {"b", "c"}, "b": {"c"}, "c": {"d"}}); cycle != nil {
		t.Errorf("a cycle in a tree: %q", cycle)
	}
	if cycle := findCycle(map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"d", "b"}}); len(cycle) != 3 || cycle[0] != cycle[2] {
		t.Errorf("b and c use each other: %q", cycle)
	}
}
