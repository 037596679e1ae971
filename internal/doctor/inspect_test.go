package doctor

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
)

// TestTableOfFixtures compares the tables with files. With FORETOKEN_REWRITE set they are
// written instead, to be looked at before they are kept.
func TestTableOfFixtures(t *testing.T) {
	for _, name := range golden.Names {
		c, err := checkpoint.Open(golden.Dir(t, name))
		if err != nil {
			t.Fatal(err)
		}
		f := Inspect(c, InspectOptions{Name: name, Context: 2000, Batch: 3, Template: template})
		path := filepath.Join("testdata", name+".txt")
		if os.Getenv("FORETOKEN_REWRITE") != "" {
			filetest.Write(t, path, f.Table())
		}
		want := filetest.Read(t, path)
		if got := f.Table(); got != string(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestInspectKnowsNumbers(t *testing.T) {
	c := openEdited(t, editTiny(t, asIs, nil))
	f := Inspect(c, InspectOptions{Context: 4096, Batch: 2, Template: template})
	if n := f.Model; n.Parameters != 18_950_320 || n.Active != n.Parameters || n.Head.Missing == nil || len(n.Head.Missing) != 0 || !n.Head.Present {
		t.Errorf("%+v", n)
	}
	m := f.Memory
	// Two attention layers with one head of 256, keys and values in 16 bits; the head has one, a
	// page more for its drafts, and a backlog of 32 rows.
	if m.KV != 2*4096*2*256*2*2 || m.Head != m.KV/2+2*(64*2*256*2+32*4*int64(f.Model.Hidden)) || m.Total != m.Weights+m.KV+m.Head+m.Recurrent || m.Recurrent < 2*6*4*128*128*4 {
		t.Errorf("%+v", m)
	}
	small := Inspect(c, InspectOptions{Context: 4096, Batch: 2, KVBits: 4})
	if m := small.Memory; 3*m.KV > f.Memory.KV || 3*m.Head > f.Memory.Head || m.Weights != f.Memory.Weights || !strings.Contains(small.Table(), "keys and values of 4 bits") {
		t.Errorf("with 4 bits: %+v, with 16 %+v", m, f.Memory)
	}
	bare := Inspect(c, InspectOptions{Context: 4096, Batch: 2, NoHead: true}).Memory
	if bare.Head != 0 || bare.KV != m.KV || bare.ServeKV >= m.ServeKV || m.Weights-bare.Weights < 1_600_000 || bare.Total != bare.Weights+bare.KV+bare.Recurrent {
		t.Errorf("without the head: %+v, with it: %+v", bare, m)
	}
	if f.Tokenizer.Size != 8196 || len(f.Tokenizer.Stop) != 2 || f.Tokenizer.Stop[1].Token != "<|im_end|>" {
		t.Errorf("%+v", f.Tokenizer)
	}
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "null") || back["loadable"] != true {
		t.Errorf("JSON: %s", data)
	}
}

func TestTemplateSaysWhatItCan(t *testing.T) {
	const turn = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
	for source, want := range map[string]Template{
		turn:                          {},
		turn + "{{ tools | tojson }}": {Tools: true},
		turn + "<think>\n":            {Thinking: true},
		turn + "{% if messages[0].content is not string and messages[0].content[0].type == 'image' %}<i>{% endif %}": {Pictures: true},
		turn + "{% if enable_thinking is defined and not enable_thinking %}x{% else %}<think>{% endif %}":            {Thinking: true, Switch: true},
		turn + "{% if enable_thinking %}<think>{% endif %}":                                                          {Switch: true},
		turn + "{% if tools %}{{ raise_exception('no tools') }}{% endif %}":                                          {},
	} {
		if got, err := newTemplate(source, "", "<i>"); err != nil || *got != want {
			t.Errorf("%q: %+v, %v, want %+v", source, got, err, want)
		}
	}
	if got, err := newTemplate(turn, turn+"{{ tools | tojson }}", ""); err != nil || !got.Tools {
		t.Errorf("a template of their own for tools: %+v, %v", got, err)
	}
	if _, err := newTemplate("{% for %}", "", ""); err == nil {
		t.Error("a broken template has no error")
	}
}

// ailment is a checkpoint with something wrong, and words of the problem and its remedy.
type ailment struct {
	name         string
	edit         edit
	texts        map[string]string
	folder       func(dir string) error // damage that only files on a disk can have
	what, remedy string
	runs         bool // all the same
}

func ailments(t *testing.T) []ailment {
	config := editTiny(t, asIs, nil)["config.json"]
	in := func(from, to string) map[string]string {
		if !strings.Contains(config, from) {
			t.Fatalf("config.json has no %s", from)
		}
		return map[string]string{"config.json": strings.ReplaceAll(config, from, to)}
	}
	without := func(tensor string) edit {
		return func(name string, _ []byte) bool { return name != tensor }
	}
	cut := func(dir string) error {
		name := filepath.Join(dir, "model.safetensors")
		info, err := os.Stat(name)
		if err == nil {
			err = os.Truncate(name, info.Size()-1000)
		}
		return err
	}
	return []ailment{
		{name: "no head", edit: withoutHead, what: "declares a multi-token-prediction head", remedy: "foretoken mtp inject --model DIR --head FILE", runs: true},
		{name: "no head promised", edit: withoutHead, texts: in(`"mtp_num_hidden_layers": 1`, `"mtp_num_hidden_layers": 0`), runs: true},
		{name: "incomplete head", edit: withoutNorm, what: "head is incomplete, 1 tensor is missing: mtp.pre_fc_norm_hidden.weight", remedy: "foretoken mtp inject --model DIR --head FILE --out DIR --force"},
		{name: "cut off", edit: asIs, folder: cut, what: "cut off or damaged", remedy: "fetch that file again"},
		{name: "no tokenizer", edit: asIs, texts: map[string]string{"tokenizer.json": ""}, what: "there is no tokenizer.json", remedy: "copy tokenizer.json from where the model was published"},
		{name: "broken tokenizer", edit: asIs, texts: map[string]string{"tokenizer.json": "{}"}, what: "tokenizer.json: ", remedy: "copy tokenizer.json again"},
		{name: "no template", edit: asIs, texts: map[string]string{"chat_template.jinja": ""}, what: "no chat template", remedy: "--no-chat-template", runs: true},
		{name: "broken template", edit: asIs, texts: map[string]string{"chat_template.jinja": "{% if %}"}, what: "chat template: ", remedy: "copy chat_template.jinja", runs: true},
		{name: "a tensor lost", edit: without("model.layers.3.mlp.up_proj.weight"), what: "1 tensor is missing: layers.3.mlp.up_proj.weight", remedy: "fetch or convert the model again"},
		{name: "scales lost", edit: without("model.layers.3.mlp.up_proj.scales"), what: "layers.3.mlp.up_proj.scales", remedy: "fetch or convert the model again"},
		{name: "untied", edit: asIs, texts: in(`"tie_word_embeddings": true`, `"tie_word_embeddings": false`), what: "1 tensor is missing: lm_head.weight", remedy: `"tie_word_embeddings": true`},
		{name: "fewer layers", edit: asIs, texts: in(`"num_hidden_layers": 8,`, `"num_hidden_layers": 8, "x": 0,`), runs: true},
		{name: "another config", edit: asIs, texts: in(`"intermediate_size": 1024`, `"intermediate_size": 1088`), what: "want [1088, ", remedy: "fetch or convert"},
		{name: "another family", edit: asIs, texts: in(`"model_type": "qwen3_5"`, `"model_type": "llama"`), what: `model_type "llama" is not supported`, remedy: "qwen3_5"},
		{name: "an unknown switch", edit: asIs, texts: in(`"attention_bias": false`, `"attention_bias": true`), what: "attention_bias true is not supported", remedy: "compare config.json"},
		{name: "no config", edit: asIs, texts: map[string]string{"config.json": "{"}, folder: func(string) error { return nil }, what: "config.json", remedy: "again"},
		{name: "shifted norms", edit: func(name string, data []byte) bool {
			if strings.HasPrefix(name, "model.layers.") && strings.HasSuffix(name, "layernorm.weight") {
				addTo(data, 1.1)
			}
			return true
		}, what: "shifted by one twice", remedy: "foretoken convert --model ORIGINAL", runs: true},
		{name: "norms of no numbers", edit: func(name string, data []byte) bool {
			if name == "model.layers.3.input_layernorm.weight" {
				addTo(data, float32(math.NaN()))
			}
			return true
		}, what: "1 norms have numbers that are not finite, such as layers.3.input_layernorm.weight", remedy: "convert from the original", runs: true},
		{name: "no stop", edit: asIs, texts: map[string]string{"config.json": in(`"eos_token_id": 8183`, `"pad_token_id": 8183`)["config.json"], "generation_config.json": ""}, what: "no token ends a text", remedy: "eos_token_id", runs: true},
	}
}

// TestInspectNamesWhatIsWrong damages the model in turn. Loadable must agree with
// loading.
func TestInspectNamesWhatIsWrong(t *testing.T) {
	b := backendtest.Open(t, backend.Options{Threads: 1})
	for _, a := range ailments(t) {
		files := editTiny(t, a.edit, a.texts)
		open := func() (*checkpoint.Checkpoint, error) { return checkpoint.OpenFiles("edited", files) }
		look := open
		if a.folder != nil {
			dir := filetest.Folder(t, files)
			if err := a.folder(dir); err != nil {
				t.Fatal(err)
			}
			open = func() (*checkpoint.Checkpoint, error) { return checkpoint.Open(dir) }
			look = func() (*checkpoint.Checkpoint, error) { return checkpoint.Examine(dir) }
		}
		c, err := look()
		if err != nil {
			t.Fatalf("%s: %v", a.name, err)
		}
		f := Inspect(c, InspectOptions{Name: "DIR", Template: template})
		if _, err := json.Marshal(f); err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
		if f.Loadable != a.runs || a.runs != loads(open, b) {
			t.Errorf("%s: loadable %v, by loading %v, want %v: %+v", a.name, f.Loadable, loads(open, b), a.runs, f.Problems)
		}
		switch {
		case a.what == "" && len(f.Problems) > 0, a.what != "" && len(f.Problems) == 0:
			t.Errorf("%s: problems %+v", a.name, f.Problems)
		case a.what != "":
			p := f.Problems[0]
			if !strings.Contains(p.What, a.what) || !strings.Contains(p.Remedy, a.remedy) || p.Fatal == a.runs {
				t.Errorf("%s: %+v", a.name, p)
			}
			if table := f.Table(); !strings.Contains(table, "remedy") || strings.Contains(table, "cannot be loaded") == a.runs {
				t.Errorf("%s: table\n%s", a.name, table)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// loads reports whether a checkpoint can be loaded, by doing it.
func loads(open func() (*checkpoint.Checkpoint, error), b backend.Backend) bool {
	c, err := open()
	if err != nil {
		return false
	}
	defer c.Close() //nolint:errcheck // read only
	m, err := model.Open(c, b, model.Options{})
	if err != nil {
		return false
	}
	_ = m.Close()
	return Inspect(c, InspectOptions{}).tok != nil
}

// A damaged folder still has the facts that can be read.
func TestInspectOfDamageHasFacts(t *testing.T) {
	files := editTiny(t, asIs, map[string]string{"tokenizer.json": ""})
	files["model.safetensors"] = files["model.safetensors"][:len(files["model.safetensors"])/2]
	c, err := checkpoint.Examine(filetest.Folder(t, files))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // read only
	f := Inspect(c, InspectOptions{})
	if f.Model == nil || f.Model.DeltaLayers != 6 || f.Model.Parameters < 1e6 || f.Memory == nil || len(f.Problems) < 3 {
		t.Errorf("%+v", f)
	}
}

func TestQuotedNamesAreOneWord(t *testing.T) {
	for name, want := range map[string]string{"a/b-1.gguf": "a/b-1.gguf", "my model": "'my model'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "": "''"} {
		if got := quoted(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// Text in files can neither control a terminal nor add a line.
func TestTableIsOnlyText(t *testing.T) {
	f := &Facts{Name: "a\x1b[2J\nb", Problems: []Problem{{What: "x\x07\ny", Remedy: "\u009b31m"}}}
	if table := f.Table(); strings.ContainsAny(table, "\x1b\x07\u009b") || strings.Count(table, "\n") != 7 {
		t.Errorf("%q", table)
	}
}
