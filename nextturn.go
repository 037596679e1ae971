package foretoken

import (
	"maps"
	"slices"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/prompt"
	"github.com/foretoken/foretoken/internal/rescue"
)

// said is an ended answer with its conversation.
type said struct {
	prompt  *prompt.Prompt
	message chat.Message
	ids     []int32 // prompt and answer
	salt    prefix.Salt
	sent    <-chan struct{} // closed when it has been delivered; nil: it has been

	talk prompt.Conversation
	key  string
}

// remember is for answers to conversations. It prefills the prefix of the next turn's prompt in the
// background, once the answer has been delivered. It renders and encodes the whole conversation, and so is not for the
// goroutine that a reader of the answer waits for.
func (m *Model) remember(x said) {
	talk := x.prompt.Talk
	x.talk, x.key = *talk, m.text.Key(x.prompt, x.salt)
	x.talk.Messages = slices.Clone(talk.Messages) // later changes of the caller belong to the next turn
	x.talk.Variables = maps.Clone(talk.Variables)
	m.warming.start(func() {
		if x.sent != nil {
			select {
			case <-x.sent:
			case <-m.warming.closing:
				return
			}
		}
		if err := rescue.Do(func() error { m.prepare(&x); return nil }); err != nil {
			m.log.Error("preparing the next turn of a conversation", "error", err.Error(), "stack", rescue.Stack(err))
		}
	})
}

// prepare prefills the prefix of the next turn's prompt if that is not the prompt and answer of
// this one, for example because the template leaves out reasoning: then the next turn finds it in the
// prefix cache.
func (m *Model) prepare(x *said) {
	if m.preparing != nil {
		m.preparing()
	}
	next := m.text.Next(&x.talk, x.prompt.Media, x.message)
	if next == nil {
		return
	}
	common, n := 0, len(next.IDs)
	for common < min(n, len(x.ids)) && next.IDs[common] == x.ids[common] {
		common++
	}
	if n == 0 || common >= len(x.ids)-1 || n >= m.context {
		return
	}
	ids, inputs := next.Inputs(n)
	done, err := m.engine.Prefill(engine.Prefill{
		Conversation: x.key, Prompt: ids, Inputs: inputs, Boundaries: m.text.Boundaries(next), Salt: x.salt, Depth: m.draft.depth,
	})
	if err == nil { // otherwise the engine is closed or full
		<-done
	}
}
