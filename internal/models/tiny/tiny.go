// Package tiny carries the default model inside the binary: a trained Qwen3.5
// checkpoint of 21 million parameters with its MTP head and a vision tower, so that
// every command works on a machine that has downloaded nothing. README.md is its model card.
//
// The package knows only the names and bytes of the checkpoint's files:
// packages checkpoint, tokenizer and chat interpret them. The tag noembed
// leaves the 26 MB out.
package tiny

// Files returns the checkpoint folder as a map from file name to content, or
// nil when the binary was built with the tag noembed. The map is the caller's;
// the contents are views of the binary itself, never copied, and always valid.
func Files() map[string]string { return files() }
