package doctor

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/drafter"
	"github.com/foretoken/foretoken/internal/plot"
	"github.com/foretoken/foretoken/internal/spec"
)

// drafterCase is something wrong with the trained drafter of tiny, or nothing.
type drafterCase struct {
	name            string
	config          map[string]any // replaced keys; nil deletes one
	tensors         edit           // by their names in the file
	opened          func(*drafter.Drafter)
	verdict, remedy string
}

// files are the drafter's.
func (c *drafterCase) files(t *testing.T) map[string]string {
	t.Helper()
	dir := golden.TinyDrafter(t).Dir
	from, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close() //nolint:errcheck // read only
	var decls []checkpoint.Decl
	var contents [][]byte
	for _, name := range from.Tensors() {
		x, err := from.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		data := bytes.Clone(x.Data)
		if c.tensors == nil || c.tensors(name, data) {
			decls = append(decls, checkpoint.Decl{Name: name, Type: x.Type, Shape: x.Shape})
			contents = append(contents, data)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	for key, value := range c.config {
		if config[key] = value; value == nil {
			delete(config, key)
		}
	}
	if text, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"config.json": string(text), "model.safetensors": golden.Tensors(t, decls, contents, from.Metadata(from.Files()[0]))}
}

func gainsPlusOne(name string, data []byte) bool {
	if strings.Contains(name, "norm") {
		addTo(data, 1)
	}
	return true
}

// foreign makes a drafter that reads rows of another model.
func foreign(name string, data []byte) bool {
	if name == "fc.weight" {
		rng := rand.New(rand.NewPCG(7, 8))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
	}
	return true
}

// TestExamineFindsOutWhatIsWrongWithADrafter damages the trained drafter, its config or the way it is read. A drafter without
// damage is found to be sound.
func TestExamineFindsOutWhatIsWrongWithADrafter(t *testing.T) {
	const again = "fetch the drafter again"
	b := backendtest.Open(t, backend.Options{Threads: 1})
	facts, m := loadOn(t, openEdited(t, editTiny(t, withoutHead, map[string]string{"config.json": headless(t)})), b)
	e := &examination{runner: newRunner(t.Context(), m, b, facts.tok.Size()), Report: &Report{Facts: facts}, o: ExamineOptions{Prompts: prompts, Tokens: 64, Progress: func(string) {}}}
	if err := e.generate(1024); err != nil {
		t.Fatal(err)
	}
	costs := &measure.Costs{Step: 1, Beta: []float64{1, 1.1, 1.2, 1.3, 1.4, 1.5}, Delta: []measure.DraftCosts{{DraftVocab: 8256, Cost: []float64{0.1, 0.1, 0.1, 0.1, 0.1}}}}
	cases := []drafterCase{
		{name: "sound", verdict: "The DSpark drafter is intact: "},
		{
			name: "taps too early", config: map[string]any{"target_layer_ids": []int{2, 4, 6}}, verdict: "its taps are off by one: it was made for the inputs of layers [4, 6, 8] of the model and gets those of [3, 5, 7]",
			remedy: `set "aux_hidden_state_layer_ids" in config.json, or target_layers in a GGUF file, to [4, 6, 8]`,
		},
		{
			name: "DSpark as DFlash", config: map[string]any{"sample_from_anchor": false}, verdict: "it is a DSpark drafter that is read as DFlash",
			remedy: `without "sample_from_anchor"`,
		},
		{
			name: "last tap after the norm", opened: func(d *drafter.Drafter) { d.Taps[2]++ }, verdict: "its last tap is read after the final norm of the model",
			remedy: "to [4, 6, 8]",
		},
		{name: "gains plus one", tensors: gainsPlusOne, verdict: "all norms were shifted up by one", remedy: again},
		{
			name: "window ignored", config: map[string]any{"sliding_window": 256, "use_sliding_window": false},
			verdict: "its windows are ignored: it was made for layers that see 256 positions", remedy: `set "use_sliding_window" to true`,
		},
		{name: "of another model", tensors: foreign, verdict: "was made for another model", remedy: "use a drafter that was made for this model"},
	}
	if !long {
		cases = cases[:3] // all take half a minute
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			k := openEdited(t, c.files(t))
			d, err := drafter.Open(k, m.(model.Lender), b, model.Options{MaxDrafts: spec.MaxDepth})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close() //nolint:errcheck // it has no error
			if c.opened != nil {
				c.opened(d)
			}
			e.Report = &Report{Facts: facts, Costs: costs, Perplexity: 60}
			e.o.Drafter = d
			if err := e.measureDrafter(1024); err != nil {
				t.Fatal(err)
			}
			r := e.Report
			r.Drafter.speeds(costs)
			r.judge()
			sound := c.remedy == ""
			if r.Healthy != sound || !strings.Contains(r.Verdict, c.verdict) || !sound && !strings.Contains(r.Findings[0].Remedy, c.remedy) {
				t.Errorf("healthy %v, %q, %+v", r.Healthy, r.Verdict, r.Findings)
			}
			if text := strings.Join(strings.Fields(r.Text(plot.Style{})), " "); !strings.Contains(text, c.verdict) || !strings.Contains(text, c.remedy) {
				t.Errorf("the report does not say so:\n%s", text)
			}
		})
	}
}

// headless is the config of tiny without a head.
func headless(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(golden.Dir(t, "tiny"), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(string(text), `"mtp_num_hidden_layers": 1`, `"mtp_num_hidden_layers": 0`, 1)
}
