package vulkan

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
	"github.com/foretoken/foretoken/internal/backend/vulkan/spirv"
)

// TestModulesComputeWithFloatsAsTheyMay reads every module as devices and levels of all kinds get it.
func TestModulesComputeWithFloatsAsTheyMay(t *testing.T) {
	for _, info := range []driver.Info{
		{}, {Keeps: driver.Controls{Denorms: true, NaN: true, Nearest: true}}, {Keeps: driver.Controls{Nearest: true}},
	} {
		list, err := readModules(os.DirFS("kernels"), &info)
		if err != nil || len(list) < 20 {
			t.Fatalf("%d modules: %v", len(list), err)
		}
		for name, m := range list {
			if err := spirv.Check(m); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for l := Instructions; l <= FewGuards; l++ {
				own, err := withoutOthers(m, l)
				err = errors.Join(err, spirv.Check(own))
				if fuses := strings.HasPrefix(name, "attend") || strings.HasPrefix(name, "product"); err != nil || fuses && l != AllGuarded && len(own) == len(m) {
					t.Errorf("%s of level %d has %d words of %d: %v", name, l, len(own), len(m), err)
				}
				if own.HasFloat64() && !l.double() {
					t.Errorf("%s of level %d computes with float64", name, l)
				}
			}
		}
	}
}

// TestModulesAreThoseOfTheSources compares the hashes of the sources and of the compiled modules with those of the last make kernels.
func TestModulesAreThoseOfTheSources(t *testing.T) {
	text, err := os.ReadFile("kernels/kernels.sum")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		data, err := os.ReadFile(filepath.Join("kernels", name))
		if err != nil {
			t.Error(err)
			continue
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(data)); got != sum {
			t.Errorf("%s was changed: run make kernels-vulkan", name)
		}
		listed = append(listed, name)
	}
	files, err := filepath.Glob("kernels/*.[cg]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !slices.Contains(listed, filepath.Base(file)) {
			t.Errorf("%s is not in kernels.sum: run make kernels-vulkan", file)
		}
	}
}

// TestModulesThatAreCutOffAreRefused reads every beginning of a small file.
func TestModulesThatAreCutOffAreRefused(t *testing.T) {
	list, err := allModules(os.DirFS("kernels"))
	if err != nil {
		t.Fatal(err)
	}
	m := list["fill"]
	for n := range len(m) {
		if _, err := spirv.Read(bytesOf(m[:n])); err == nil && n > 5 && !whole(m, n) {
			t.Fatalf("%d of %d words are a module", n, len(m))
		}
	}
}

// whole reports whether an instruction of a module ends before word n.
func whole(m spirv.Module, n int) bool {
	at := 5
	for at < n {
		at += int(m[at] >> 16)
	}
	return at == n
}

// bytesOf is the bytes of a module.
func bytesOf(m spirv.Module) []byte {
	var data []byte
	for _, w := range m {
		data = append(data, byte(w), byte(w>>8), byte(w>>16), byte(w>>24))
	}
	return data
}
