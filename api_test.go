// The race detector has other tests, and would compile the imports of this one for nothing.
//go:build !race

package foretoken_test

import (
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// public are the packages that others may import.
var public = []string{module, module + "/chat", module + "/grammar", module + "/sample"}

// TestExportedNamesNeedNoInternalType checks that all a public package asks for or gives can be
// named by a program that imports it: no exported signature, field, constant or variable has a type
// of an internal package, and no exported name is an alias of one.
func TestExportedNamesNeedNoInternalType(t *testing.T) {
	c := &exports{t: t, seen: map[types.Type]bool{}}
	from := compiled(t)
	for _, path := range public {
		p, err := from.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range p.Scope().Names() {
			if o := p.Scope().Lookup(name); o.Exported() {
				c.at = p.Name() + "." + name
				c.visit(o.Type())
			}
		}
	}
}

// compiled imports packages as the go command has compiled them, the public ones and all they
// need.
func compiled(t *testing.T) types.Importer {
	t.Helper()
	args := append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}"}, public...)
	list, err := exec.CommandContext(t.Context(), "go", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(list)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		files[path] = file
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
}

// exports walks the types that a user of the public packages can reach.
type exports struct {
	t    *testing.T
	seen map[types.Type]bool
	at   string // what is looked at
}

func (c *exports) visit(t types.Type) {
	t = types.Unalias(t)
	if c.seen[t] {
		return
	}
	c.seen[t] = true
	switch t := t.(type) {
	case *types.Named:
		c.visitNamed(t)
	case *types.Signature:
		c.visit(t.Params())
		c.visit(t.Results())
	case *types.Tuple:
		for v := range t.Variables() {
			c.visit(v.Type())
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() {
				c.visit(f.Type())
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			c.visit(m.Type())
		}
	case *types.Map:
		c.visit(t.Key())
		c.visit(t.Elem())
	case interface{ Elem() types.Type }: // a pointer, slice, array or channel
		c.visit(t.Elem())
	}
}

// visitNamed visits a named type, and its parts if the type is part of the public API.
func (c *exports) visitNamed(t *types.Named) {
	o := t.Obj()
	for arg := range t.TypeArgs().Types() {
		c.visit(arg)
	}
	if o.Pkg() == nil || o.Pkg().Path() != module && !strings.HasPrefix(o.Pkg().Path(), module+"/") {
		return
	}
	if strings.Contains(o.Pkg().Path(), "/internal/") {
		c.t.Errorf("%s needs %v, which its users cannot name", c.at, t)
		return
	}
	at := c.at
	c.at = o.Pkg().Name() + "." + o.Name()
	c.visit(t.Underlying())
	for m := range t.Methods() {
		if m.Exported() {
			c.at = o.Pkg().Name() + "." + o.Name() + "." + m.Name()
			c.visit(m.Type())
		}
	}
	c.at = at
}
