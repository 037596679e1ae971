// Command _gen writes structs.go: the structures of kernels/*.cu and *.cuh that Go fills in or reads, as Go
// structures with the same fields at the same offsets. A structure is shared if its first line ends with the
// comment "shared with Go".
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// field is a field of a structure.
type field struct {
	name, typ   string // in Go
	size, align int
}

// structure is a structure of C.
type structure struct {
	name, file  string // of C
	lines       string // its declarations, and what follows
	fields      []field
	size, align int // 0: fields are yet to be laid out
}

var (
	constants = map[string]int{}
	known     = map[string]*structure{}
	list      []*structure

	// Types of C by their words, without const.
	numbers = map[string]field{
		"int": {typ: "int32", size: 4, align: 4}, "unsigned": {typ: "uint32", size: 4, align: 4}, "float": {typ: "float32", size: 4, align: 4},
		"double": {typ: "float64", size: 8, align: 8}, "u64": {typ: "uint64", size: 8, align: 8}, "long long": {typ: "int64", size: 8, align: 8},
		"unsigned char": {typ: "byte", size: 1, align: 1},
	}

	constant = regexp.MustCompile(`(?m)^const int ([^;]*);`)
	shared   = regexp.MustCompile(`(?m)^struct (\w+) \{  // shared with Go\n`)
	array    = regexp.MustCompile(`^(\w+)\[(\w+)\]$`)
)

func main() {
	log.SetFlags(0)
	files, err := filepath.Glob("kernels/*.cu*")
	if err != nil {
		log.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			log.Fatal(err)
		}
		read(filepath.Base(file), string(text))
	}
	for _, s := range list {
		if err := s.lay(); err != nil {
			log.Fatalf("kernels/%s: struct %s: %v", s.file, s.name, err)
		}
	}
	code, err := format.Source(source())
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("structs.go", code, 0o644); err != nil {
		log.Fatal(err)
	}
}

// read adds the constants and the shared structures of a file.
func read(file, text string) {
	for _, m := range constant.FindAllStringSubmatch(text, -1) {
		for declared := range strings.SplitSeq(m[1], ",") {
			name, value, _ := strings.Cut(declared, "=")
			if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
				constants[strings.TrimSpace(name)] = n
			}
		}
	}
	for _, at := range shared.FindAllStringSubmatchIndex(text, -1) {
		s := &structure{name: text[at[2]:at[3]], file: file, lines: text[at[1]:]}
		if other := known[s.name]; other != nil {
			log.Fatalf("struct %s is in %s and in %s", s.name, other.file, file)
		}
		known[s.name] = s
		list = append(list, s)
	}
}

// lay finds the fields, which are declared before methods.
func (s *structure) lay() error {
	if s.align > 0 {
		return nil
	}
	s.align = 1
	for line := range strings.Lines(s.lines) {
		line, _, _ = strings.Cut(line, "//")
		line = strings.TrimSpace(line)
		if line == "};" || strings.HasPrefix(line, "__device__") {
			break
		}
		if line == "" {
			continue
		}
		if err := s.declare(line); err != nil {
			return err
		}
	}
	s.pad(s.align)
	return nil
}

// declare adds the fields of a declaration such as "const float *q, *k;".
func (s *structure) declare(line string) error {
	declared, ok := strings.CutSuffix(line, ";")
	if !ok {
		return fmt.Errorf("%q is no declaration in one line", line)
	}
	declared = strings.ReplaceAll(strings.ReplaceAll(declared, "const", ""), "*", " * ")
	words := strings.Fields(strings.ReplaceAll(declared, ",", " , "))
	n := 0
	for n < len(words)-1 && words[n] != "*" && words[n+1] != "," {
		n++
	}
	of := strings.Join(words[:n], " ")
	for name := range strings.SplitSeq(strings.Join(words[n:], " "), ",") {
		f, ok := numbers[of]
		if nested := known[of]; nested != nil {
			if err := nested.lay(); err != nil {
				return err
			}
			f, ok = field{typ: goName(of), size: nested.size, align: nested.align}, true
		}
		name = strings.TrimSpace(name)
		if bare := strings.TrimLeft(name, "* "); bare != name {
			name, f, ok = bare, field{typ: "driver.Ptr", size: 8, align: 8}, true
		}
		if !ok {
			return fmt.Errorf("type %q is not known", of)
		}
		if m := array.FindStringSubmatch(name); m != nil {
			length, err := strconv.Atoi(m[2])
			if c, ok := constants[m[2]]; ok {
				length, err = c, nil
			}
			if err != nil {
				return fmt.Errorf("constant %q is not known", m[2])
			}
			name, f.typ, f.size = m[1], fmt.Sprintf("[%d]%s", length, f.typ), length*f.size
		}
		f.name = name
		s.pad(f.align)
		s.fields, s.size, s.align = append(s.fields, f), s.size+f.size, max(s.align, f.align)
	}
	return nil
}

// pad makes the space before a field, or behind the last one, a field of its own.
func (s *structure) pad(align int) {
	if n := (align - s.size%align) % align; n > 0 {
		s.fields, s.size = append(s.fields, field{name: "_", typ: fmt.Sprintf("[%d]byte", n)}), s.size+n
	}
}

// goName is the name of a structure in Go.
func goName(name string) string { return strings.ToLower(name[:1]) + name[1:] + "Param" }

// source is the text of structs.go.
func source() []byte {
	var b bytes.Buffer
	b.WriteString("// Code generated by _gen from the sources of the kernels. DO NOT EDIT.\n\npackage cuda\n\n")
	b.WriteString("import (\n\t\"unsafe\"\n\n\t\"github.com/foretoken/foretoken/internal/backend/cuda/driver\"\n)\n")
	var names []string
	for _, s := range list {
		fmt.Fprintf(&b, "\n// %s is struct %s of kernels/%s.\ntype %[1]s struct {\n", goName(s.name), s.name, s.file)
		for _, f := range s.fields {
			fmt.Fprintf(&b, "\t%s %s\n", f.name, f.typ)
		}
		b.WriteString("}\n")
		names = append(names, goName(s.name))
	}
	fmt.Fprintf(&b, "\n// params are the structures that kernels have in common with Go.\ntype params interface {\n\t%s\n}\n\n", strings.Join(names, " |\n\t"))
	b.WriteString("// Sizes in C: a difference does not compile.\nvar (\n")
	for _, s := range list {
		fmt.Fprintf(&b, "\t_ [%d]byte = [unsafe.Sizeof(%s{})]byte{}\n", s.size, goName(s.name))
	}
	b.WriteString(")\n")
	return b.Bytes()
}
