package checkpoint

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
)

func generation(t *testing.T, text string) (Generation, error) {
	t.Helper()
	f := files{"config.json": "{}", "model.safetensors": encode(t, nil, random("a", dtype.U8, 1))}
	if text != "" {
		f["generation_config.json"] = text
	}
	c, err := OpenFiles("test", f)
	if err != nil {
		t.Fatal(err)
	}
	return c.Generation()
}

func TestGenerationReadsWhatIsThere(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", `{}`},
		{`{}`, `{}`},
		{
			`{"eos_token_id":[5,6],"pad_token_id":6,"bos_token_id":null,"do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0,"repetition_penalty":1.05}`,
			`{"eos_token_id":[5,6],"do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0,"repetition_penalty":1.05}`,
		},
		{`{"eos_token_id":7,"top_k":20.0,"temperature":1,"unknown":{"x":[1]}}`, `{"eos_token_id":[7],"top_k":20,"temperature":1}`},
		{`{"eos_token_id":null,"top_k":null,"temperature":null,"do_sample":null}`, `{}`},
		{`{"eos_token_id":[]}`, `{}`},
		{`{"pad_token_id":-1,"bos_token_id":"<s>","max_new_tokens":"all"}`, `{}`}, // not used
	} {
		g, err := generation(t, c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		var want Generation
		filetest.Decode(t, c.want, &want)
		a, _ := json.Marshal(g)
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Errorf("%s: %s, want %s", c.text, a, b)
		}
	}
	g, err := generation(t, `{"eos_token_id":[5,6],"top_k":20.0}`)
	if err != nil || !slices.Equal(g.EOS, TokenIDs{5, 6}) || *g.TopK != 20 || g.TopP != nil {
		t.Errorf("%+v, %v", g, err)
	}
}

func TestGenerationRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{\n\"temperature\": NaN}":      "generation_config.json line 2: NaN is not valid JSON",
		`{"temperature":-Infinity}`:     "Infinity is not valid JSON",
		`{"temperature":"NaN"}`:         "temperature: found string, want number",
		`{"top_k":20.5}`:                "20.5 is not a whole number",
		`{"top_k":1e300}`:               "not a whole number",
		`{"top_k":"20"}`:                "not a number",
		`{"eos_token_id":-1}`:           "token id -1 is out of range",
		`{"eos_token_id":[4294967296]}`: "token id 4294967296 is out of range",
		`{"eos_token_id":[1,null]}`:     "token ids",
		`{"eos_token_id":"</s>"}`:       "token ids",
		`{"eos_token_id":{}}`:           "token ids",
		`{"do_sample":1}`:               "do_sample: found number, want true or false",
		`[]`:                            "found array, want object",
		`{"top_k":1`:                    "unexpected end",
	} {
		_, err := generation(t, text)
		contains(t, err, "generation_config.json", want)
	}
}
