package generate

import (
	"slices"
	"strings"

	"github.com/foretoken/foretoken/chat"
)

// Arrange puts messages in the order that templates demand: all system and developer messages
// first, as one message.
func Arrange(list []chat.Message) []chat.Message {
	if !slices.ContainsFunc(list, isSystem) || len(list) > 0 && list[0].Role == "system" && !slices.ContainsFunc(list[1:], isSystem) {
		return list
	}
	var texts []string
	var rest []chat.Message
	for _, m := range list {
		if !isSystem(m) {
			rest = append(rest, m)
			continue
		}
		if text, ok := m.Content.Text(); ok && text != "" {
			texts = append(texts, text)
		}
	}
	system := chat.Message{Role: "system", Content: chat.Text(strings.Join(texts, "\n\n"))}
	return append([]chat.Message{system}, rest...)
}

func isSystem(m chat.Message) bool { return m.Role == "system" || m.Role == "developer" }
