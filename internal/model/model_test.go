package model_test

import (
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	_ "github.com/foretoken/foretoken/internal/model/qwen35"
	"github.com/foretoken/foretoken/internal/model/weights"
)

func TestOpenNamesTheFamiliesItKnows(t *testing.T) {
	dir := t.TempDir()
	golden.Write(t, dir, []byte(`{"model_type": "gpt2"}`), []golden.SpecTensor{{Name: "x", Shape: []int{1}, Values: []float32{1}}})
	_, err := model.Open(golden.Open(t, dir), nil, model.Options{})
	if err == nil || !strings.Contains(err.Error(), `"gpt2"`) || !strings.Contains(err.Error(), "qwen3_5_moe") {
		t.Errorf("error %v, want the model's type and the known ones", err)
	}
}

func TestOpenRefusesOtherKVBits(t *testing.T) {
	c := golden.Open(t, golden.Dir(t, "dense"))
	if _, err := model.Open(c, nil, model.Options{KVBits: 5}); err == nil || !strings.Contains(err.Error(), "4, 8, 16 or 32") {
		t.Errorf("error %v, want the bits that there are", err)
	}
}

func TestGenerateNamesTheShapesItKnows(t *testing.T) {
	_, err := model.Generate("13b", weights.BitsForm(4), nil, model.Options{})
	if err == nil || !strings.Contains(err.Error(), `"13b"`) || !strings.Contains(err.Error(), "27b") {
		t.Errorf("error %v, want the shape and the known ones", err)
	}
}

// Two families must not answer to one name, whichever of their names it is.
func TestRegisterRefusesNamesThatAreTaken(t *testing.T) {
	for _, f := range []model.Family{{Types: []string{"other", "qwen3_next"}}, {GGUF: []string{"qwen35moe"}}, {Shapes: []string{"27b"}}} {
		func() {
			defer func() {
				if r, _ := recover().(string); !strings.Contains(r, "is registered by") {
					t.Errorf("%v was registered: %v", f, r)
				}
			}()
			model.Register(&f)
		}()
	}
}

// A config without a type is of the family whose architecture it names, and a head in a folder of
// its own of the family of its model.
func TestFamiliesAreFoundByTheirNames(t *testing.T) {
	for config, want := range map[string][2]bool{ // by Of, by OfPart
		`{"model_type": "qwen3_5"}`:                                                     {true, true},
		`{"model_type": "qwen3_5_mtp"}`:                                                 {false, true},
		`{"architectures": ["Other", "Qwen3_5ForConditionalGeneration"]}`:               {true, true},
		`{"model_type": "other", "architectures": ["Qwen3_5ForConditionalGeneration"]}`: {false, false},
		`{}`:            {false, false},
		`not an object`: {false, false},
	} {
		_, err := model.Of([]byte(config))
		_, head := model.OfPart([]byte(config))
		if got := [2]bool{err == nil, head == nil}; got != want {
			t.Errorf("%s: %v, %v, %v", config, got, err, head)
		}
	}
}
