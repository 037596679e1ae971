//go:build !noembed

package tiny

import _ "embed" // for the directives below

// Strings rather than an embed.FS: a string is a view of the binary's read-only
// data, while reading from an embed.FS would copy the weights to the heap.
var (
	//go:embed config.json
	config string
	//go:embed generation_config.json
	generationConfig string
	//go:embed tokenizer.json
	tokenizer string
	//go:embed tokenizer_config.json
	tokenizerConfig string
	//go:embed chat_template.jinja
	chatTemplate string
	//go:embed preprocessor_config.json
	preprocessor string
	//go:embed video_preprocessor_config.json
	videoPreprocessor string
	//go:embed model.safetensors.index.json
	index string
	//go:embed model-00001-of-00002.safetensors
	shard1 string
	//go:embed model-00002-of-00002.safetensors
	shard2 string
	//go:embed model-vision.safetensors
	vision string
)

func files() map[string]string {
	return map[string]string{
		"config.json":                      config,
		"generation_config.json":           generationConfig,
		"tokenizer.json":                   tokenizer,
		"tokenizer_config.json":            tokenizerConfig,
		"chat_template.jinja":              chatTemplate,
		"preprocessor_config.json":         preprocessor,
		"video_preprocessor_config.json":   videoPreprocessor,
		"model.safetensors.index.json":     index,
		"model-00001-of-00002.safetensors": shard1,
		"model-00002-of-00002.safetensors": shard2,
		"model-vision.safetensors":         vision,
	}
}
