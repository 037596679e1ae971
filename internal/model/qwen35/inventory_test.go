package qwen35

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// inventory lists a folder's weights.
func inventory(t *testing.T, dir string, part weights.Portion) (*weights.Inventory, error) {
	t.Helper()
	return model.Inventory(golden.Open(t, dir), part, slog.New(slog.DiscardHandler))
}

// TestInventoryOfLayoutsIsOne lists the models of the specification in every layout:
// names and effective numbers are the same.
func TestInventoryOfLayoutsIsOne(t *testing.T) {
	for _, c := range golden.SpecCases() {
		v, err := inventory(t, c.Config.Checkpoint(t), weights.Whole)
		if err != nil {
			t.Fatal(err)
		}
		want := modeltest.Numbers(t, v)
		list := layouts()
		if c.Config.Experts > 0 {
			list = append(list, expertLayouts()...)
		}
		for _, l := range list {
			t.Run(fmt.Sprintf("model=%s/layout=%s", c.Config.Name, l.name), func(t *testing.T) {
				v, err := inventory(t, specFolder(t, c.Config, l.edits...).write(t), weights.Whole)
				if err != nil {
					t.Fatal(err)
				}
				got := modeltest.Numbers(t, v)
				if len(got) != len(want) {
					t.Errorf("%d weights, want %d", len(got), len(want))
				}
				for name, x := range want {
					if !slices.EqualFunc(got[name], x, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
						t.Errorf("%s differs", name)
					}
				}
			})
		}
	}
}

// TestInventoryRefuses what Open refuses, by the same names.
func TestInventoryRefuses(t *testing.T) {
	c := golden.SpecCases()[0].Config
	for _, x := range []struct {
		name  string
		edits []edit
		part  weights.Portion
		want  string
	}{
		{"missing", []edit{without("layers.2.mlp.up_proj.weight")}, weights.Whole, "layers.2.mlp.up_proj.weight"},
		{"missing of the head", []edit{without("mtp.norm.weight")}, weights.Whole, "head is incomplete"},
		{"left over", []edit{with(some("model.language_model.layers.0.odd"))}, weights.Whole, "layers.0.odd"},
		{"left over of the head", []edit{with(some("mtp.odd"))}, weights.HeadOnly, "mtp.odd"},
		{"no head", []edit{without("mtp.fc.weight"), func(_ *testing.T, f *folder) { f.main().take(inHead) }}, weights.HeadOnly, weights.ErrNoHead.Error()},
	} {
		_, err := inventory(t, specFolder(t, c, x.edits...).write(t), x.part)
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.name, err, x.want)
		}
	}
	// What is wrong elsewhere is not the business of who takes a part.
	if _, err := inventory(t, specFolder(t, c, with(some("mtp.odd"))).write(t), weights.WithoutHead); err != nil {
		t.Errorf("the model: %v", err)
	}
	if _, err := inventory(t, specFolder(t, c, with(some("odd")), without("layers.2.mlp.up_proj.weight")).write(t), weights.HeadOnly); err != nil {
		t.Errorf("the head: %v", err)
	}
}

// TestInventoryAddsHeads of the right shape to models that have none.
func TestInventoryAddsHeads(t *testing.T) {
	cases := golden.SpecCases()
	take := func(i int, part weights.Portion) *weights.Inventory {
		v, err := inventory(t, cases[i].Config.Checkpoint(t), part)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	v := take(0, weights.WithoutHead)
	if err := v.AddHead(take(0, weights.WithoutHead)); !errors.Is(err, weights.ErrNoHead) {
		t.Errorf("of a model: %v", err)
	}
	for i := 1; i < len(cases); i++ {
		if err := v.AddHead(take(i, weights.HeadOnly)); err == nil || v.HasHead() {
			t.Errorf("%s took the head of %s", cases[0].Config.Name, cases[i].Config.Name)
		}
	}
	if err := v.AddHead(take(0, weights.HeadOnly)); err != nil || !v.HasHead() || len(v.Weights) != len(take(0, weights.Whole).Weights) {
		t.Errorf("its own: %v", err)
	}
	if err := v.AddHead(take(0, weights.HeadOnly)); err == nil {
		t.Error("a second one was taken")
	}
}
