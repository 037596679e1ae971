//go:build long

package cuda

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

func init() { modelCases = append(modelCases, modelCase{"tiny", model.Options{}, 1}) }

// The released sizes have eight kernels a layer and one more for attention; five with rows of 4,096 numbers and more, and seven with experts.
func TestLaunchesOfShapes(t *testing.T) {
	for _, c := range []struct {
		shape string
		most  int
	}{{"2b", 203}, {"9b", 173}, {"27b", 341}, {"35b-a3b", 295}, {"gemma-4-31b", 557}, {"gemma-4-26b-a4b", 642}} {
		kernels, _ := decode(t, 1, func(b backend.Backend) (model.Model, error) {
			return model.Generate(c.shape, weights.BitsForm(4), b, model.Options{MaxDrafts: 7})
		})
		t.Logf("%s, one row:\n%s", c.shape, table(kernels))
		if n := total(kernels); n > c.most {
			t.Errorf("%s has %d kernels, want at most %d", c.shape, n, c.most)
		}
	}
}
