package chat

import (
	"github.com/foretoken/foretoken/internal/dialogue/values"
	"github.com/foretoken/foretoken/internal/jinja"
)

func init() {
	values.Message = func(m any, text, null bool) jinja.Value { return m.(*Message).value(text, null) }
	values.Tool = func(t any) **jinja.Map { return &t.(*Tool).fields }
	values.Arguments = func(a any) **jinja.Map { return &a.(*Arguments).fields }
	values.ReadToolCall = func(to any, v jinja.Value) (err error) {
		*to.(*ToolCall), err = toolCallFrom(v)
		return err
	}
}
