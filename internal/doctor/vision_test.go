package doctor

import (
	"strings"
	"testing"
)

// TestInspectNamesWhatBlindsAModel damages the preprocessing of images. The model still takes text.
func TestInspectNamesWhatBlindsAModel(t *testing.T) {
	sound := editTiny(t, asIs, nil)
	in := func(file, from, to string) map[string]string {
		if !strings.Contains(sound[file], from) {
			t.Fatalf("%s has no %s", file, from)
		}
		return map[string]string{file: strings.Replace(sound[file], from, to, 1)}
	}
	const p = "preprocessor_config.json"
	for _, c := range []struct {
		name         string
		edit         edit
		texts        map[string]string
		what, remedy string
	}{
		{name: "sound"},
		{name: "no preprocessor", texts: map[string]string{p: ""}, what: "there is no preprocessor_config.json: images are prepared as for the released models", remedy: "copy preprocessor_config.json"},
		{name: "another patch", texts: in(p, `"patch_size": 16`, `"patch_size": 14`), what: "images are refused: preprocessor_config.json sets patches of 14 pixels and 2 frames, and tokens of 2×2 patches, but the tower needs patches of 16 pixels", remedy: "copy preprocessor_config.json"},
		{name: "another mean", texts: map[string]string{p: strings.ReplaceAll(sound[p], "0.5", "0.48")}, what: "has image_mean [0.48 0.48 0.48] and image_std [0.48 0.48 0.48], the values of another family", remedy: "copy preprocessor_config.json"},
		{name: "a broken preprocessor", texts: map[string]string{p: "{"}, what: "images are refused: preprocessor_config.json: ", remedy: "again"},
		{name: "a tensor lost", edit: func(name string, _ []byte) bool { return name != "vision_tower.blocks.2.attn.qkv.bias" }, what: "the vision tower cannot be used, the model accepts text only: the vision tower is incomplete: tensor is missing: visual.blocks.2.attn.qkv.bias", remedy: "foretoken convert --model DIR --out DIR --no-vision"},
		{name: "another kernel", texts: in("config.json", `"temporal_patch_size": 2`, `"temporal_patch_size": 1`), what: `"vision_tower.patch_embed.proj.weight"`, remedy: "fetch or convert"},
		{name: "no config", texts: in("config.json", `"vision_config"`, `"vision_settings"`), what: "config.json has no vision_config, but the weights have a vision tower", remedy: "fetch or convert"},
		{name: "deepstack", texts: in("config.json", `"deepstack_visual_indexes": []`, `"deepstack_visual_indexes": [1]`), what: "deepstack_visual_indexes is [1]", remedy: "fetch or convert"},
		{name: "another id", texts: in("config.json", `"vision_start_token_id": 8192`, `"vision_start_token_id": 8185`), what: `config.json: vision_start_token_id is 8185, which is "<|im_end|>"; <|vision_start|> is 8192`, remedy: "set vision_start_token_id to 8192 in config.json"},
		{name: "no token", texts: map[string]string{"config.json": in("config.json", `"image_token_id"`, `"image_id"`)["config.json"], "tokenizer.json": in("tokenizer.json", "<|image_pad|>", "<|image|>")["tokenizer.json"]}, what: "images are refused: config.json has no image_token_id, and tokenizer.json has no <|image_pad|>", remedy: "copy config.json and tokenizer.json"},
		{name: "text only template", texts: map[string]string{"chat_template.jinja": "{% for m in messages %}{{ m.content | string }}{% endfor %}"}, what: "images are refused: the chat template has no placeholder for them", remedy: "copy chat_template.jinja"},
	} {
		files := map[string]string{}
		for name, text := range sound {
			files[name] = text
		}
		if c.edit != nil {
			files = editTiny(t, c.edit, nil)
		}
		for name, text := range c.texts {
			if files[name] = text; text == "" {
				delete(files, name)
			}
		}
		k := openEdited(t, files)
		f := Inspect(k, InspectOptions{Name: "DIR", Template: template})
		switch table := f.Table(); {
		case !f.Loadable || (c.what == "") != (len(f.Problems) == 0):
			t.Errorf("%s: loadable %v, problems %+v", c.name, f.Loadable, f.Problems)
		case c.what != "" && (!strings.Contains(f.Problems[0].What, c.what) || !strings.Contains(f.Problems[0].Remedy, c.remedy)):
			t.Errorf("%s: %+v", c.name, f.Problems[0])
		case !strings.Contains(table, "\nvision "):
			t.Errorf("%s: %s", c.name, table)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestExamineTriesTheTower examines the sound tower and damaged ones.
func TestExamineTriesTheTower(t *testing.T) {
	of := func(prefix string, change func(data []byte)) edit {
		return func(name string, data []byte) bool {
			if strings.HasPrefix(name, "vision_tower."+prefix) {
				change(data)
			}
			return true
		}
	}
	for _, c := range []struct {
		name, finding string
		edit          edit
	}{
		{"sound", "", asIs},
		{"untrained", "The model cannot tell an image of a red ball from one of a blue box", of("patch_embed.proj.weight", func(data []byte) { clear(data) })},
		{"damaged", "The output of the vision tower is not finite", of("merger.norm.weight", func(data []byte) { // bf16
			for i := range data {
				data[i] = 0xff
			}
		})},
		{"too large", "times as large as embedded text", of("merger.linear_fc2.bias", func(data []byte) {
			for i := 0; i < len(data); i += 2 {
				data[i], data[i+1] = 0x80, 0x4b // 2²⁴
			}
		})},
	} {
		k := openEdited(t, editTiny(t, c.edit, nil))
		facts, m, b := load(t, k)
		if err := facts.MeasureText(k); err != nil {
			t.Fatal(err)
		}
		r := &Report{Facts: facts}
		e := &examination{runner: newRunner(t.Context(), m, b, facts.tok.Size()), Report: r, o: ExamineOptions{Progress: func(string) {}}}
		if err := e.testImages(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		r.judgeImages()
		if c.finding == "" {
			if len(r.Findings) > 0 || r.Images.Apart < 20 || r.Images.Tokens != 16 || r.Images.Scale < 1 || r.Images.Scale > 50 || !strings.Contains(r.Images.String(), "are told apart") {
				t.Errorf("%s: %+v, %+v", c.name, r.Images, r.Findings)
			}
			continue
		}
		if len(r.Findings) != 1 || !strings.Contains(r.Findings[0].What, c.finding) || !strings.Contains(r.Findings[0].Remedy, "foretoken convert") {
			t.Errorf("%s: %+v, %+v", c.name, r.Images, r.Findings)
		}
	}
}
