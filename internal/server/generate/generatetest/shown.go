package generatetest

import (
	"fmt"
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/dialogue"
)

// Shown is the template's view of messages, and the files behind each image and video:
// "user: <image>What is this? [PNG]".
func Shown(t testing.TB, messages []chat.Message) (list []string) {
	t.Helper()
	template, err := dialogue.NewTemplate(`{%- set c = messages[0].content -%}
{{ messages[0].role ~ ': ' }}{% if c is string %}{{ c }}{% else %}{% for p in c %}{{ p.text if p.type == 'text' else '<' ~ p.type ~ '>' }}{% endfor %}{% endif %}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		r, err := template.Render(dialogue.Input{Messages: []chat.Message{m}})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range m.Content.Media() {
			r.Text += fmt.Sprintf(" %s", x.Files)
			if x.MaxPixels > 0 {
				r.Text += fmt.Sprintf(" at most %d", x.MaxPixels)
			}
			if x.Rate > 0 {
				r.Text += fmt.Sprintf(" at %v", x.Rate)
			}
		}
		list = append(list, r.Text)
	}
	return list
}
