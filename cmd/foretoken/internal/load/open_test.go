package load

import (
	"testing"

	"github.com/foretoken/foretoken"
)

func TestPlacementInOneLine(t *testing.T) {
	got := DescribePlacement([]foretoken.Placement{
		{Device: "gpu", Layers: 2, Parts: []string{"layers 2-3", "output"}, Weights: 7e6}, {Device: "cpu", Layers: 2, Parts: []string{"layers 0-1"}, Weights: 6e5},
	})
	if want := "gpu: layers 2-3, output, 7.0 MB; cpu: layers 0-1, 0.6 MB"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
