package model_test

import (
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	_ "github.com/foretoken/foretoken/internal/model/qwen35"
)

func TestOpenNamesTheFamiliesItKnows(t *testing.T) {
	dir := t.TempDir()
	golden.Write(t, dir, []byte(`{"model_type": "gpt2"}`), []golden.SpecTensor{{Name: "x", Shape: []int{1}, Values: []float32{1}}})
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // read only
	_, err = model.Open(c, nil, model.Options{})
	if err == nil || !strings.Contains(err.Error(), `"gpt2"`) || !strings.Contains(err.Error(), "qwen3_5_moe") {
		t.Errorf("error %v, want the model's type and the known ones", err)
	}
}

func TestOpenRefusesOtherKVBits(t *testing.T) {
	c, err := checkpoint.Open(golden.Dir(t, "dense"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // read only
	if _, err := model.Open(c, nil, model.Options{KVBits: 4}); err == nil || !strings.Contains(err.Error(), "8, 16 or 32") {
		t.Errorf("error %v, want the bits that there are", err)
	}
}
