// The race detector has other tests, and would compile the imports of these for nothing.
//go:build !race

// Package foretoken_test checks rules of the tree: imports, package comments, lengths of files and
// functions, and size. The tests read the two tables of docs/ARCHITECTURE.md. A rule is changed there or in
// the constants below, by a commit that states the reason.
package foretoken_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

const (
	module = "github.com/foretoken/foretoken"

	maxFileLines     = 500
	maxTestFileLines = 800
	maxFuncLines     = 70

	// Hand-written lines without tests, and without what is counted apart below. A commit that raises a
	// limit says what the lines are for; a commit that deletes lines lowers it.
	maxTreeLines = 135_300
	maxTestLines = 10_450 // of packages that only tests import
	maxGenLines  = 14_370 // of programs that write code, which is not counted itself

	// The repository travels to other machines for tests, weights included.
	maxTreeBytes = 47_960_000
)

// Packages that only tests import, and folders with programs that write code: their lines are counted apart.
var (
	testPackages = []string{
		"internal/backend/backendtest", "internal/backend/cuda/drivertest", "internal/backend/cuda/drivertest/ptx", "internal/batch/batchtest",
		"internal/batch/jetstream/natstest", "internal/checkpoint/gguf/gguftest", "internal/engine/enginetest", "internal/filetest", "internal/model/modeltest", "internal/prefix/s3/s3test", "internal/server/generate/generatetest",
	}
	generators = []string{"internal/backend/cpu/kernel/_gen", "internal/backend/cuda/_gen"}
)

// Package names that do not describe their contents.
var emptyNames = []string{"util", "utils", "helper", "helpers", "common", "base", "types", "core", "pkg", "misc", "shared"}

// Files with a test that one of our platforms cannot run, and why.
var maySkip = map[string]string{
	"internal/checkpoint/open_test.go": "resident memory is read from /proc, which only Linux has",
}

// The floating point that decides which token comes next must be the same on every
// CPU. Package math promises that only for functions that round exactly. The others
// have assembly variants and lose or gain a fused multiply-add from one architecture
// to the next. Every package is held to this, so that a new one is not forgotten,
// except those whose results no token depends on.
var (
	inexactPackages = map[string]string{
		"internal/doctor":  "perplexity, which is reported",
		"internal/golden":  "random weights, held by their SHA-256",
		"internal/measure": "means of measured times",
		"internal/plot":    "the scale of an axis",
	}
	inexactMath = []string{
		"Acos", "Acosh", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "Cbrt", "Cos", "Cosh", "Erf", "Erfc", "Exp",
		"Exp2", "Expm1", "Gamma", "Hypot", "Lgamma", "Log", "Log10", "Log1p", "Log2", "Pow", "Sin", "Sincos", "Sinh", "Tan", "Tanh",
	}
)

// source is one Go file, whatever its build tags.
type source struct {
	path      string // slash-separated, from the module root
	dir       string // its package, "." for the root
	test      bool
	generated bool
	lines     int
	files     *token.FileSet
	syntax    *ast.File
}

// line is the position of a node as a reader would type it.
func (s *source) line(p token.Pos) string {
	return s.path + ":" + strconv.Itoa(s.files.Position(p).Line)
}

// imports are the import paths of the file.
func (s *source) imports() []string {
	paths := make([]string, len(s.syntax.Imports))
	for i, spec := range s.syntax.Imports {
		paths[i], _ = strconv.Unquote(spec.Path.Value) // the parser has checked it
	}
	return paths
}

// functions are the functions and methods declared in the file.
func (s *source) functions() []*ast.FuncDecl {
	var found []*ast.FuncDecl
	for _, d := range s.syntax.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			found = append(found, f)
		}
	}
	return found
}

// selectors visits every selector below a node, such as os.Exit, with both its names.
func selectors(below ast.Node, visit func(at token.Pos, left, right string)) {
	ast.Inspect(below, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok {
				visit(sel.Pos(), x.Name, sel.Sel.Name)
			}
		}
		return true
	})
}

var parsed = sync.OnceValues(func() (sources []*source, err error) {
	err = filepath.WalkDir(".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if leave(name) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		s := &source{path: filepath.ToSlash(name), files: token.NewFileSet()}
		s.dir = path.Dir(s.path)
		s.test = strings.HasSuffix(name, "_test.go")
		s.lines = bytes.Count(text, []byte("\n"))
		s.syntax, err = parser.ParseFile(s.files, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		s.generated = ast.IsGenerated(s.syntax)
		sources = append(sources, s)
		return nil
	})
	return sources, err
})

// leave tells the folders that the go command does not look into either, modules of their own
// among them, and bin.
func leave(dir string) bool {
	base := filepath.Base(dir)
	hidden := base != "." && (base[0] == '.' || base[0] == '_')
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return hidden || base == "testdata" || dir == "bin" || dir == "dist" || dir != "." && err == nil
}

// tree is every Go file of the module.
func tree(t *testing.T) []*source {
	t.Helper()
	sources, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// packages are the folders that hold Go code other than tests.
func packages(t *testing.T) []string {
	t.Helper()
	var dirs []string
	for _, s := range tree(t) {
		if !s.test && !slices.Contains(dirs, s.dir) {
			dirs = append(dirs, s.dir)
		}
	}
	return dirs
}

// law reads the table under a heading of docs/ARCHITECTURE.md: from the code
// spans of the key column to the code spans (or the bare word) of the value column.
func law(t *testing.T, heading string, key, value int) map[string][]string {
	t.Helper()
	text := filetest.Read(t, "docs/ARCHITECTURE.md")
	_, section, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("docs/ARCHITECTURE.md: no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	code := regexp.MustCompile("`([^`]+)`")
	rows := map[string][]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) <= max(key, value)+1 {
			continue
		}
		var values []string
		for _, m := range code.FindAllStringSubmatch(cells[value+1], -1) {
			values = append(values, m[1])
		}
		if values == nil {
			values = []string{strings.TrimSpace(cells[value+1])}
		}
		for _, m := range code.FindAllStringSubmatch(cells[key+1], -1) {
			rows[m[1]] = values
		}
	}
	if len(rows) == 0 {
		t.Fatalf("docs/ARCHITECTURE.md: no table under %q", heading)
	}
	return rows
}

func TestPackagesImportWhatTheTableAllows(t *testing.T) {
	allowed := law(t, "Import rules", 0, 1)
	for _, s := range tree(t) {
		if s.test {
			continue // a test may use golden files, the CPU and the embedded model
		}
		for _, imported := range s.imports() {
			ours, ok := strings.CutPrefix(imported, module+"/")
			if !ok {
				continue
			}
			may := allowed[s.dir]
			if !slices.Contains(may, ours) && !slices.Contains(may, "all") {
				t.Errorf("%s imports %s: the table of docs/ARCHITECTURE.md does not allow it", s.path, ours)
			}
		}
	}
}

// A family registers itself. All use of its checkpoints goes through model.Family, so only
// its own code names it: the root package imports it for all others.
func TestOnlyABlankImportNamesAFamily(t *testing.T) {
	var families []string // names of packages below internal/model that register one
	for _, s := range tree(t) {
		rest, ok := strings.CutPrefix(s.dir, "internal/model/")
		if !ok || s.test {
			continue
		}
		text := filetest.Read(t, s.path)
		if bytes.Contains(text, []byte("Register(&model.Family{")) {
			families = append(families, rest)
		}
	}
	if len(families) == 0 {
		t.Error("there is no family")
	}
	for _, family := range families {
		dir := "internal/model/" + family
		word := regexp.MustCompile(`\b` + regexp.QuoteMeta(family) + `\b`)
		imported := false
		for _, s := range tree(t) {
			if s.test || s.dir == dir || strings.HasPrefix(s.dir, dir+"/") {
				continue
			}
			text := filetest.Read(t, s.path)
			named := len(word.FindAll(text, -1))
			for _, spec := range s.syntax.Imports {
				if spec.Path.Value == strconv.Quote(module+"/"+dir) && s.path == "imports.go" && spec.Name != nil && spec.Name.Name == "_" {
					imported = true
					named--
				}
			}
			if named > 0 {
				t.Errorf("%s names %s: ask model.Family", s.path, family)
			}
		}
		if !imported {
			t.Errorf("imports.go does not import %s: no program can use it", dir)
		}
	}
}

func TestPackagesAreTheOnesInTheTable(t *testing.T) {
	allowed := law(t, "Import rules", 0, 1)
	dirs := packages(t)
	for _, dir := range dirs {
		if strings.HasPrefix(dir, "examples/") {
			continue
		}
		if _, ok := allowed[dir]; !ok {
			t.Errorf("%s has no row in docs/ARCHITECTURE.md: a new package needs a sentence there", dir)
		}
	}
	for dir := range allowed {
		if !slices.Contains(dirs, dir) {
			t.Errorf("docs/ARCHITECTURE.md has a row for %s, which does not exist", dir)
		}
	}
}

func TestDependenciesAreTheOnesInTheTable(t *testing.T) {
	users := law(t, "Dependencies", 0, 2)
	used := map[string]bool{}
	for _, s := range tree(t) {
		for _, imported := range s.imports() {
			if imported == "C" {
				t.Errorf("%s uses cgo: everything builds with CGO_ENABLED=0", s.path)
			}
			first, _, _ := strings.Cut(imported, "/")
			if !strings.Contains(first, ".") || imported == module || strings.HasPrefix(imported, module+"/") {
				continue // the standard library, or ours
			}
			found := ""
			for dependency := range users {
				if imported == dependency || strings.HasPrefix(imported, dependency+"/") {
					found = dependency
				}
			}
			used[found] = true
			if found == "" {
				t.Errorf("%s imports %s, which is not in the table of docs/ARCHITECTURE.md", s.path, imported)
			} else if !slices.Contains(users[found], s.dir) {
				t.Errorf("%s imports %s, which is not for package %s", s.path, imported, s.dir)
			}
		}
	}
	for dependency := range users {
		if !used[dependency] {
			t.Errorf("docs/ARCHITECTURE.md lists %s, which nothing imports", dependency)
		}
	}
}

// Embedders of the library inherit the requirements of go.mod: nothing that only tests need, and
// no patch release of Go.
func TestEmbeddersInheritWhatTheLibraryNeeds(t *testing.T) {
	text := filetest.Read(t, "go.mod")
	if version := regexp.MustCompile(`(?m)^go (.*)$`).FindStringSubmatch(string(text)); version == nil || !regexp.MustCompile(`^1\.\d+(\.0)?$`).MatchString(version[1]) {
		t.Errorf("go.mod: %q asks for a patch release", version)
	}
	for _, m := range regexp.MustCompile(`(?m)^(?:require )?\s*([\w.-]+\.[\w./-]+) v[^ ]+$`).FindAllStringSubmatch(string(text), -1) {
		needed := slices.ContainsFunc(tree(t), func(s *source) bool {
			return !s.test && slices.ContainsFunc(s.imports(), func(imported string) bool {
				return imported == m[1] || strings.HasPrefix(imported, m[1]+"/")
			})
		})
		if !needed {
			t.Errorf("go.mod requires %s, which only tests import: they belong in internal/server/clienttest", m[1])
		}
	}
}

// What computes is chosen at run time, by the name that users type: only a blank import may name
// the package of a device outside of its folder, where the product and where tests get all of them,
// those of one device in files of its name. Another device may pack weights as the CPU does: the
// bytes are the same, and so is the code; package gpu is what GPUs have in common. Several devices that are made one have no name, those of other
// machines have addresses.
func TestDevicesAreNamedByBlankImportsOnly(t *testing.T) {
	const devices = module + "/internal/backend/"
	may := []string{"imports.go", "internal/backend/backendtest/open.go"}
	named := 0
	for _, s := range tree(t) {
		for i, imported := range s.imports() {
			name, ok := strings.CutPrefix(imported, devices)
			if name, _, _ = strings.Cut(name, "/"); !ok || name == "backendtest" || s.dir == "internal/backend/backendtest" && name == "conformance" || name == "split" || name == "remote" || strings.HasPrefix(s.dir+"/", "internal/backend/"+name+"/") {
				continue
			}
			if (imported == devices+"cpu/kernel" || imported == devices+"gpu" || imported == devices+"conformance") && (s.dir == "internal/backend/cuda" || s.dir == "internal/backend/vulkan") {
				continue
			}
			named++
			spec := s.syntax.Imports[i]
			if spec.Name == nil || spec.Name.Name != "_" || !slices.Contains(may, s.path) && path.Base(s.path) != name+"_test.go" {
				t.Errorf("%s imports %s: open it by backend.Open", s.line(spec.Pos()), imported)
			}
		}
	}
	if named < len(may) {
		t.Errorf("%d blank imports of devices, want some in each of %v", named, may)
	}
}

// Imports stand in three groups: the standard library, others, ours.
func TestImportsAreGrouped(t *testing.T) {
	for _, s := range tree(t) {
		group, end := 0, 0
		for i, imported := range s.imports() {
			first, _, _ := strings.Cut(imported, "/")
			is := 0
			switch {
			case imported == module || strings.HasPrefix(imported, module+"/"):
				is = 2
			case strings.Contains(first, "."):
				is = 1
			}
			spec := s.syntax.Imports[i]
			start := s.files.Position(spec.Pos()).Line
			if spec.Doc != nil {
				start = s.files.Position(spec.Doc.Pos()).Line
			}
			if i > 0 && (is < group || (start > end+1) != (is > group)) {
				t.Errorf("%s: %s stands in the wrong group", s.line(spec.Pos()), imported)
			}
			group, end = is, s.files.Position(spec.End()).Line
		}
	}
}

func TestPackagesSayWhatTheyAre(t *testing.T) {
	comments := map[string]int{}
	for _, s := range tree(t) {
		if s.test {
			continue
		}
		doc := s.syntax.Doc.Text()
		if doc == "" {
			continue
		}
		comments[s.dir]++
		name := s.syntax.Name.Name
		if name != "main" && !strings.HasPrefix(doc, "Package "+name+" ") {
			t.Errorf("%s: package comment does not begin with %q", s.path, "Package "+name)
		}
	}
	for _, dir := range packages(t) {
		if n := comments[dir]; n != 1 {
			t.Errorf("%s has %d package comments, want 1", dir, n)
		}
	}
}

func TestNamesSayWhatIsInside(t *testing.T) {
	version := regexp.MustCompile(`(^|_)(v\d+|new|old|tmp)(_|$)`)
	for _, s := range tree(t) {
		file := strings.TrimSuffix(strings.TrimSuffix(path.Base(s.path), ".go"), "_test")
		for _, name := range []string{s.syntax.Name.Name, path.Base(s.dir), file} {
			if slices.Contains(emptyNames, name) || version.MatchString(name) {
				t.Errorf("%s: %q says nothing about what is inside", s.path, name)
			}
		}
	}
}

func TestFilesAndFunctionsStayShort(t *testing.T) {
	for _, s := range tree(t) {
		if s.generated {
			continue
		}
		limit := maxFileLines
		if s.test {
			limit = maxTestFileLines
		}
		if s.lines > limit {
			t.Errorf("%s has %d lines, at most %d", s.path, s.lines, limit)
		}
		if s.test {
			continue
		}
		for _, f := range s.functions() {
			if n := s.files.Position(f.End()).Line - s.files.Position(f.Pos()).Line + 1; n > maxFuncLines {
				t.Errorf("%s: %s has %d lines, at most %d", s.line(f.Pos()), f.Name.Name, n, maxFuncLines)
			}
		}
	}
}

func TestTreeStaysSmall(t *testing.T) {
	total, tests := 0, map[string]int{}
	for _, s := range tree(t) {
		switch {
		case s.generated || s.test:
		case slices.Contains(testPackages, s.dir):
			tests[s.dir] += s.lines
		default:
			total += s.lines
		}
	}
	apart, product := 0, linked(t, "cmd/foretoken")
	for _, dir := range testPackages {
		if product[dir] {
			t.Errorf("%s is counted apart and is part of the program", dir)
		}
		if apart += tests[dir]; tests[dir] == 0 {
			t.Errorf("%s is counted apart and does not exist", dir)
		}
	}
	generating := 0
	for _, dir := range generators {
		n := 0
		err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
			if err != nil || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path.Join(dir, name))
			n += bytes.Count(text, []byte("\n"))
			return err
		})
		if generating += n; err != nil || n == 0 {
			t.Errorf("%s has %d lines, %v", dir, n, err)
		}
	}
	for _, count := range []struct {
		what     string
		n, limit int
	}{{"the tree", total, maxTreeLines}, {"packages for tests", apart, maxTestLines}, {"generators", generating, maxGenLines}} {
		t.Logf("%s: %d lines of %d", count.what, count.n, count.limit)
		if count.n > count.limit {
			t.Errorf("%s: %d lines, at most %d", count.what, count.n, count.limit)
		}
	}
}

// linked are the folders whose packages are in the program of a folder, for some platform and build tags.
func linked(t *testing.T, dir string) map[string]bool {
	t.Helper()
	imports, seen := map[string][]string{}, map[string]bool{}
	for _, s := range tree(t) {
		if !s.test {
			imports[s.dir] = append(imports[s.dir], s.imports()...)
		}
	}
	for next := []string{dir}; len(next) > 0; {
		dir, next = next[0], next[1:]
		if seen[dir] {
			continue
		}
		seen[dir] = true
		for _, path := range imports[dir] {
			if path == module {
				next = append(next, ".")
			} else if rest, ok := strings.CutPrefix(path, module+"/"); ok {
				next = append(next, rest)
			}
		}
	}
	return seen
}

func TestRepositoryStaysSmall(t *testing.T) {
	var total int64
	err := filepath.WalkDir(".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if name == ".git" || name == "bin" || name == "dist" {
				return filepath.SkipDir
			}
			return nil
		}
		info, err := e.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes of %d", total, maxTreeBytes)
	if total > maxTreeBytes {
		t.Errorf("the repository has %d bytes, at most %d", total, maxTreeBytes)
	}
}

func TestLibrariesLeaveTheProcessAlone(t *testing.T) {
	command := map[string]string{
		"os.Exit": "return an error", "log.Fatal": "return an error", "log.Fatalf": "return an error",
		"os.Getenv": "take an option", "os.LookupEnv": "take an option", "os.Environ": "take an option",
	}
	for _, s := range tree(t) {
		if s.test || slices.Contains(testPackages, s.dir) || s.syntax.Name.Name == "main" || strings.HasPrefix(s.dir, "cmd/") {
			continue
		}
		selectors(s.syntax, func(at token.Pos, left, right string) {
			if remedy, ok := command[left+"."+right]; ok {
				t.Errorf("%s: %s.%s is for commands: %s", s.line(at), left, right, remedy)
			}
		})
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok && setsProcessors(c) {
				t.Errorf("%s: setting GOMAXPROCS is for commands: say in the documentation what is best", s.line(c.Pos()))
			}
			return true
		})
	}
}

// setsProcessors reports whether a call changes GOMAXPROCS, or may: 0 only asks.
func setsProcessors(c *ast.CallExpr) bool {
	f, ok := c.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "GOMAXPROCS" || len(c.Args) != 1 {
		return false
	}
	n, ok := c.Args[0].(*ast.BasicLit)
	return !ok || n.Value != "0"
}

func TestTokensDependOnExactMathOnly(t *testing.T) {
	used := map[string]bool{}
	for _, s := range tree(t) {
		if s.test {
			continue
		}
		selectors(s.syntax, func(at token.Pos, left, right string) {
			if left != "math" || !slices.Contains(inexactMath, right) {
				return
			}
			used[s.dir] = true
			if inexactPackages[s.dir] == "" {
				t.Errorf("%s: math.%s differs between CPUs: use package exactmath", s.line(at), right)
			}
		})
	}
	for dir := range inexactPackages {
		if !used[dir] {
			t.Errorf("%s uses exact functions only: hold it to the rule", dir)
		}
	}
}

// A test may be skipped for -short, because the same test runs without it, and for the
// reasons in maySkip.
func TestNoTestIsSkippedQuietly(t *testing.T) {
	for _, s := range tree(t) {
		if maySkip[s.path] != "" {
			continue
		}
		testers := testParameters(s.syntax)
		for _, f := range s.functions() {
			var skips []token.Pos
			excused := false
			selectors(f, func(at token.Pos, left, right string) {
				if testers[left] && (right == "Skip" || right == "Skipf" || right == "SkipNow") {
					skips = append(skips, at)
				}
				excused = excused || left == "testing" && right == "Short"
			})
			for _, at := range skips {
				if !excused {
					t.Errorf("%s skips a test that CI would never run", s.line(at))
				}
			}
		}
	}
}

// A bare clone must be green anywhere, on a public machine that sets CI=true too.
func TestTestsNeedNothingButTheRepository(t *testing.T) {
	for _, s := range tree(t) {
		if !s.test || s.path == "arch_test.go" {
			continue
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, _ := strconv.Unquote(literal.Value) // the parser has checked it
			if text == "CI" || text == "shared" || strings.HasPrefix(text, "../") && strings.Contains(text, "/shared") {
				t.Errorf("%s: %q: no test looks at CI or beside the repository", s.line(n.Pos()), text)
			}
			return true
		})
	}
}

// Packages that start goroutines and need no list of tests for the race detector, and why.
var mayRace = map[string]string{
	"cmd/foretoken":              "its tests run it as another process",
	"examples/batch":             "an example, without tests",
	"internal/engine/enginetest": "it reads two streams at once, as tests in the list of internal/engine do",
	"internal/prefix/store":      "the list of internal/prefix runs it",
}

// make race runs the function TestRace of each package that has one: a list of tests in which
// goroutines meet. It is built with the tag race only.
func TestGoroutinesMeetTheRaceDetector(t *testing.T) {
	starts, listed := map[string]string{}, map[string]bool{}
	for _, s := range tree(t) {
		if path.Base(s.path) == "race_test.go" {
			listed[s.dir] = true
			if len(s.functions()) != 1 || s.functions()[0].Name.Name != "TestRace" {
				t.Errorf("%s: want the function TestRace and no other", s.path)
			}
		}
		if s.test {
			continue
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				starts[s.dir] = s.line(n.Pos())
			case *ast.CallExpr:
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Go" {
					starts[s.dir] = s.line(n.Pos())
				}
			}
			return true
		})
	}
	for dir, at := range starts {
		command, _, _ := strings.Cut(dir, "/internal/") // a command's packages are as the command
		if !listed[dir] && mayRace[command] == "" {
			t.Errorf("%s starts a goroutine: list tests for the race detector in %s/race_test.go", at, dir)
		}
	}
}

// testParameters are the names under which functions of a file hold a test or benchmark.
func testParameters(file *ast.File) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok {
			return true
		}
		typ := field.Type
		if star, ok := typ.(*ast.StarExpr); ok {
			typ = star.X
		}
		if sel, ok := typ.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "testing" {
				for _, name := range field.Names {
					names[name.Name] = true
				}
			}
		}
		return true
	})
	return names
}

func TestOpenWorkHasAnIssue(t *testing.T) {
	mark := regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)
	issue := regexp.MustCompile(`\bTODO\(#\d+\)`)
	for _, s := range tree(t) {
		for _, group := range s.syntax.Comments {
			for _, c := range group.List {
				if mark.MatchString(c.Text) && !issue.MatchString(c.Text) {
					t.Errorf("%s: open work without an issue: write TODO(#number)", s.line(c.Pos()))
				}
			}
		}
	}
}
