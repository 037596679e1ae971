// Package chat goes from messages to the text of a prompt and from the text of
// an answer back to content, reasoning and tool calls.
//
// It knows messages and tools as OpenAI has them, the variables that Hugging
// Face hands to a checkpoint's chat template, the think tags, and the ways in
// which Qwen, GLM and DeepSeek models write tool calls. It does not know tokens, models or
// HTTP: text goes in and text comes out, in pieces of any size.
package chat
