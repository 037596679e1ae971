// Package dialogue turns messages into the text of a prompt, and the text of
// an answer into content, reasoning and tool calls.
//
// It knows the variables that Hugging Face passes to a checkpoint's chat template, the think tags, and
// the tool-call formats of Qwen, GLM and DeepSeek models. It does not know tokens, models or
// HTTP: input and output are text, in pieces of any size.
package dialogue
