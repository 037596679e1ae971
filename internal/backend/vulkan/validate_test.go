//go:build vulkan

package vulkan

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
)

// TestModulesAreValid has the validator of the SPIR-V tools read every module, as devices of some levels get it.
func TestModulesAreValid(t *testing.T) {
	dir := t.TempDir()
	for l, info := range map[Level]driver.Info{Instructions: {}, FewGuards: {}, Doubles: {Float64: true, Keeps: driver.Controls{Denorms: true, NaN: true, Nearest: true}}} {
		list, err := readModules(os.DirFS("kernels"), &info)
		if err != nil {
			t.Fatal(err)
		}
		for name, m := range list {
			if m, err = withoutOthers(m, l); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, name+".spv")
			if err := os.WriteFile(file, bytesOf(m), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), "spirv-val", "--target-env", "vulkan1.3", "--scalar-block-layout", file).CombinedOutput(); bytes.Contains(out, []byte("Invalid capability operand: 6022")) {
				t.Logf("%s has cooperative matrices, which this version of spirv-val does not know", name)
			} else if err != nil {
				t.Errorf("%s of level %d: %v: %s", name, l, err, out)
			}
		}
	}
}
