//go:build long

package cuda

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
)

func init() { modelCases = append(modelCases, modelCase{"tiny", model.Options{}, 1}) }

// The released sizes have ten kernels a layer, with experts thirteen.
func TestLaunchesOfShapes(t *testing.T) {
	for _, c := range []struct {
		shape string
		most  int
	}{{"2b", 245}, {"9b", 325}, {"27b", 645}, {"35b-a3b", 525}} {
		kernels, _ := decode(t, 1, func(b backend.Backend) (model.Model, error) {
			return model.Generate(c.shape, 4, b, model.Options{MaxDrafts: 7})
		})
		t.Logf("%s, one row:\n%s", c.shape, table(kernels))
		if n := total(kernels); n > c.most {
			t.Errorf("%s has %d kernels, want at most %d", c.shape, n, c.most)
		}
	}
}
