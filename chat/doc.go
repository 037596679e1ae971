// Package chat has the messages of a conversation, the tools that a model may call, and the parts of
// its answer: content, reasoning and tool calls.
//
// Messages and tools are read in OpenAI's format. The package does not know templates, tokens, models
// or HTTP.
package chat
