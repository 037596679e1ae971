package qwen35

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
)

// paroQuant stores a model as ParoQuant's folders have it, with the head of the release.
func paroQuant(t *testing.T, f *folder) {
	t.Helper()
	separateExperts(t, f)
	text := f.text()
	for _, key := range []string{"moe_intermediate_size", "shared_expert_intermediate_size"} {
		if text[key] != nil {
			text[key] = dtype.RotationGroup
		}
	}
	f.config["quantization_config"] = map[string]any{"quant_method": "paroquant", "bits": 4, "group_size": 128, "krot": 8}
	list := f.main().tensors
	f.main().tensors = nil
	for _, x := range list {
		m := golden.WidenExpert(golden.Named{Name: x.name, Shape: x.shape, Values: x.values()})
		parts, _ := golden.ParoQuant(m)
		for _, p := range parts {
			f.main().add(tensor{p.Suffix, p.Type, p.Shape, p.Data})
		}
		if parts == nil {
			f.main().add(numbers(m.Name, dtype.F32, m.Shape, m.Values))
		}
	}
}

// rotated is a model with experts in ParoQuant's layout.
func rotated(t *testing.T) modeltest.Subject {
	t.Helper()
	s := modeltest.Subject{Name: "paroquant", Dir: smallFixture(t, "moe").edit(t, paroQuant).write(t), Options: model.Options{Compute: backend.Int8, MaxDrafts: 8}}
	for i := range 70 {
		s.Tokens = append(s.Tokens, int32(i*i%61))
	}
	return s
}
