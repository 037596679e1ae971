package qwen35

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// Short names for the head's norms.
const (
	inNorm   = "layers.0.input_layernorm"
	postNorm = "layers.0.post_attention_layernorm"
	qNorm    = "layers.0.self_attn.q_norm"
	kNorm    = "layers.0.self_attn.k_norm"
	hidNorm  = "pre_fc_norm_hidden"
	embNorm  = "pre_fc_norm_embedding"
	outNorm  = "norm"
)

// means are the means of a head's stored norms. Those not given are near those of a raw
// head, or of a converted one.
type means map[string]float64

func rawMeans(others means) means {
	m := means{inNorm: -0.05, postNorm: 0.02, qNorm: 0.2, kNorm: 0.15, hidNorm: -0.3, embNorm: -0.44, outNorm: 0.6}
	maps.Copy(m, others)
	return m
}

func convertedMeans(others means) means {
	m := means{}
	for name, v := range rawMeans(nil) {
		m[name] = v + 1
	}
	maps.Copy(m, others)
	return m
}

var all = []string{inNorm, postNorm, qNorm, kNorm, hidNorm, embNorm, outNorm}

// TestNormConventionOfHead decides synthetic heads by the layered rule of spec 4.3.
func TestNormConventionOfHead(t *testing.T) {
	const side, inFolder = "mtp.safetensors", "mtp/weights.safetensors"
	type base struct{ converted, marked bool }
	raw, unmarked, marked := base{}, base{converted: true}, base{true, true}
	for _, c := range []struct {
		name  string
		base  base
		file  string // of the head
		head  means
		edits []edit
		raw   []string // the norms that must be found raw
	}{
		{"raw inside a raw model", raw, mainFile, rawMeans(nil), nil, all},
		{"raw inside a raw model, whatever the numbers", raw, mainFile, convertedMeans(nil), nil, all},
		{"converted inside a marked model, whatever the numbers", marked, mainFile, rawMeans(nil), nil, nil},
		{"converted inside an unmarked model", unmarked, mainFile, convertedMeans(nil), nil, nil},
		{"raw inside an unmarked converted model", unmarked, mainFile, rawMeans(nil), nil, all},
		{"raw beside a converted model", marked, side, rawMeans(nil), nil, all},
		{"raw beside an unmarked converted model", unmarked, side, rawMeans(nil), nil, all},
		{"raw beside a raw model", raw, side, rawMeans(nil), nil, all},
		{"converted beside a raw model", raw, side, convertedMeans(nil), nil, nil},
		{"converted beside a converted model", marked, side, convertedMeans(nil), nil, nil},
		{"marked beside a raw model, whatever the numbers", raw, side, rawMeans(nil), []edit{metadata(side, "mlx")}, nil},
		{"fetched from a raw model, whatever the numbers", marked, side, convertedMeans(nil), []edit{fetched(weights.LessOne)}, all},
		{"manifest, whatever the numbers", raw, inFolder, rawMeans(nil), []edit{manifest(`{"rmsnorm_weight_format": "mlx_gamma"}`)}, nil},
		{"manifest of another format", raw, inFolder, rawMeans(nil), []edit{manifest(`{"rmsnorm_weight_format": "raw"}`)}, all},
		{"manifest that is not JSON", raw, inFolder, rawMeans(nil), []edit{manifest(`mlx_gamma`)}, all},

		{"published 35B-A3B, converted", unmarked, mainFile, convertedMeans(means{hidNorm: 0.4937, embNorm: 0.2734}), nil, nil},
		{"published 3.8-27B, converted", unmarked, mainFile, convertedMeans(means{hidNorm: 0.8428, embNorm: 0.5393}), nil, nil},
		{"published 27B, raw", marked, side, rawMeans(means{embNorm: -0.44}), nil, all},
		{"published 35B-A3B less one, raw", marked, side, rawMeans(means{hidNorm: -0.5063, embNorm: -0.7266}), nil, all},

		{"only the embedding's norm raw", unmarked, mainFile, convertedMeans(means{embNorm: -0.44}), nil, []string{embNorm}},
		{"only the layer norms shifted", marked, side, rawMeans(means{inNorm: 0.95, postNorm: 1.02, qNorm: 1.2, kNorm: 1.15, outNorm: 1.6}), nil, []string{hidNorm, embNorm}},
		{"only the outer norms shifted", marked, side, rawMeans(means{hidNorm: 0.7, embNorm: 0.56}), nil, []string{inNorm, postNorm, qNorm, kNorm, outNorm}},
		{"one layer norm shifted", marked, side, rawMeans(means{qNorm: 1.2}), nil, []string{inNorm, postNorm, kNorm, hidNorm, embNorm, outNorm}},
		{"one layer norm not shifted", marked, side, convertedMeans(means{inNorm: -0.05}), nil, []string{inNorm}},
		{"doubtful norms follow a raw majority", marked, side, rawMeans(means{qNorm: 0.6, kNorm: 0.4, hidNorm: 0.3, embNorm: 0.2}), nil, all},
		{"doubtful norms follow a converted majority", marked, side, convertedMeans(means{qNorm: 0.6, kNorm: 0.4, hidNorm: 0.3, embNorm: 0.2}), nil, nil},
		{"a tie is converted", marked, side, convertedMeans(means{inNorm: -0.05, kNorm: 0.4}), nil, []string{inNorm}},
		{"a negative final norm is raw", marked, side, convertedMeans(means{outNorm: -0.01}), nil, []string{outNorm}},
		{"a large final norm follows the majority", marked, side, rawMeans(means{outNorm: 3}), nil, all},
	} {
		t.Run("head="+c.name, func(t *testing.T) {
			f := normFolder(t, c.base.converted, c.base.marked, c.file, c.head).edit(t, c.edits...)
			got := conventions(t, f)
			for _, name := range all {
				want := weights.Effective
				if slices.Contains(c.raw, name) {
					want = weights.LessOne
				}
				if got["mtp."+name+".weight"] != want {
					t.Errorf("%s of mean %g is taken for %v, want %v", name, c.head[name], got["mtp."+name+".weight"], want)
				}
			}
		})
	}
}

// TestNormConventionOfModel decides by what the file says of itself, then by the shape of
// the convolutions.
func TestNormConventionOfModel(t *testing.T) {
	for _, c := range []struct {
		name  string
		edits []edit
		want  weights.Convention
	}{
		{"raw shape", nil, weights.LessOne},
		{"raw shape, marked by another tool", []edit{metadata(mainFile, "pt")}, weights.LessOne},
		{"two dimensions", []edit{convShape(2)}, weights.LessOne},
		{"converted shape", []edit{convShape(3)}, weights.Effective},
		{"converted shape, marked", []edit{convShape(3), metadata(mainFile, "mlx")}, weights.Effective},
		{"raw shape, marked", []edit{metadata(mainFile, "mlx")}, weights.Effective},
	} {
		t.Run("model="+c.name, func(t *testing.T) {
			f := normFolder(t, false, false, mainFile, rawMeans(nil)).edit(t, c.edits...)
			if got := conventions(t, f)["layers.0.input_layernorm.weight"]; got != c.want {
				t.Errorf("taken for %v, want %v", got, c.want)
			}
		})
	}
}

// normFolder has a convolution to know the model by, one norm of it, and a head's norms
// with the given means.
func normFolder(t *testing.T, converted, marked bool, file string, head means) *folder {
	t.Helper()
	f := newFolder(t, []byte(`{"model_type": "qwen3_5", "num_hidden_layers": 1, "hidden_size": 8, "intermediate_size": 8}`))
	f.main().add(
		numbers("layers.0.linear_attn.conv1d.weight", dtype.F32, []int{2, 1, 4}, make([]float32, 8)),
		numbers("layers.0.input_layernorm.weight", dtype.F32, []int{2}, []float32{0.9, 1.1}))
	if converted {
		f.edit(t, convShape(3))
	}
	if marked {
		f.edit(t, metadata(mainFile, "mlx"))
	}
	if f.files[file] == nil {
		f.files[file] = &weightFile{}
	}
	for name, m := range head {
		v := []float32{float32(m - 0.3), float32(m + 0.1), float32(m + 0.2), float32(m)}
		f.files[file].add(numbers("mtp."+name+".weight", dtype.F32, []int{4}, v))
	}
	return f
}

// conventions are the decisions for all norms of a folder, by canonical name.
func conventions(t *testing.T, f *folder) map[string]weights.Convention {
	t.Helper()
	c := golden.Open(t, f.write(t))
	log := slog.New(slog.DiscardHandler)
	cfg := &config{layers: []bool{false}}
	found, err := weights.Open(c, weights.Reading{Canonical: canonical}, log)
	if err != nil {
		t.Fatal(err)
	}
	rule, err := findNormRule(c, found, cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]weights.Convention{}
	for _, name := range slices.Concat(headNorms, []string{"layers.0.input_layernorm.weight", "layers.0.post_attention_layernorm.weight", "norm.weight"}) {
		p, ok := found.Place(name)
		if !ok {
			continue
		}
		x, err := p.From.Tensor(p.Name)
		if err != nil {
			t.Fatal(err)
		}
		v, err := p.From.Vector(p.Name, weights.Elements(x.Shape))
		if err != nil {
			t.Fatal(err)
		}
		if got[name] = rule.model; weights.IsHead(name) {
			got[name] = rule.of(name, v)
		}
	}
	return got
}

// TestNormMixedHeadsAreOneModel shifts the layer norms of a head in all combinations.
// Each tensor's own numbers tell, so all must load to the same model.
func TestNormMixedHeadsAreOneModel(t *testing.T) {
	layerNorms := []string{inNorm, postNorm, qNorm, kNorm}
	// The outer norms are made plain to tell: the final one is raw and negative, the other
	// two hold gains.
	base := []edit{
		change("mtp.norm.weight", func(x *tensor) { x.set(negative(x.values())) }),
		mlx, sidecar("mtp.safetensors"), unshifted(func(name string) bool { return strings.HasSuffix(name, "mtp.norm.weight") }),
	}
	for _, c := range golden.SpecCases() {
		want := answers(t, specFolder(t, c.Config, base[0]).write(t), golden.SpecPrompt)
		for set := range 1 << len(layerNorms) {
			dir := specFolder(t, c.Config, base...).edit(t, unshifted(func(name string) bool {
				i := slices.IndexFunc(layerNorms, func(n string) bool { return strings.HasSuffix(name, "mtp."+n+".weight") })
				return i >= 0 && set>>i&1 == 1
			})).write(t)
			same(t, fmt.Sprintf("%s with raw norms %04b", c.Config.Name, set), answers(t, dir, golden.SpecPrompt), want)
		}
	}
}

func negative(x []float32) []float32 {
	for i := range x {
		x[i] = min(x[i], -x[i])
	}
	return x
}

// TestNormGuardWarns checks that a model shifted twice, or not at all, is spoken of.
func TestNormGuardWarns(t *testing.T) {
	for _, c := range []struct {
		name  string
		edits []edit
		want  string // of the warning, "" for none
	}{
		{"raw", nil, ""},
		{"converted", []edit{mlx}, ""},
		{"shifted in a file that looks raw", []edit{shifted(everything)}, "near 2"},
		{"shifted twice in a marked file", []edit{shifted(inModel), mlx}, "near 2"},
		{"raw in a marked file", []edit{metadata(mainFile, "mlx")}, "near 0"},
		{"raw in a converted layout", []edit{convShape(3)}, "near 0"},
	} {
		for _, s := range golden.SpecCases() {
			t.Run(fmt.Sprintf("model=%s/model=%s", s.Config.Name, c.name), func(t *testing.T) {
				var log strings.Builder
				o := model.Options{Compute: backend.Float32, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}
				open(t, specFolder(t, s.Config, c.edits...).write(t), 1, o)
				n := strings.Count(log.String(), "\n")
				if c.want == "" && n > 0 || c.want != "" && (n != 1 || !strings.Contains(log.String(), c.want)) {
					t.Errorf("%d warnings, want %q: %s", n, c.want, log.String())
				}
			})
		}
	}
}

// TestNormConventionIsLogged checks that a decision by numbers can be read afterwards,
// tensor by tensor.
func TestNormConventionIsLogged(t *testing.T) {
	var log strings.Builder
	o := model.Options{Compute: backend.Float32, Log: slog.New(slog.NewTextHandler(&log, nil))}
	c := golden.SpecCases()[0].Config
	open(t, specFolder(t, c, mlx, unshifted(inHead), sidecar("mtp.safetensors")).write(t), 1, o)
	for _, name := range all {
		if !strings.Contains(log.String(), "tensor=mtp."+name+".weight") {
			t.Errorf("no word of %s in the log:\n%s", name, log.String())
		}
	}
}
