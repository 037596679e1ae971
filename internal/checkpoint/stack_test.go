package checkpoint_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/golden"
)

func TestMatrixStackIsTheWholeTensor(t *testing.T) {
	moe, err := checkpoint.Open(golden.Dir(t, "moe"))
	if err != nil {
		t.Fatal(err)
	}
	defer moe.Close() //nolint:errcheck // read only
	const name = "model.language_model.layers.0.mlp.experts.gate_up_proj"
	experts, err := moe.MatrixStack(name, 16, 128, 128)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := moe.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(experts[15].Data, whole.Data[15*128*128*2:]) || !slices.Equal(whole.Shape, []int{16, 128, 128}) {
		t.Error("the last expert is not the end of the tensor")
	}
}
