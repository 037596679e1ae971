package foretoken

import (
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/private"
)

func init() {
	private.SetShared = func(options any, s private.Shared) { options.(*Options).shared = s }
	private.SetObserver = func(options any, o prefix.Observer) { options.(*Options).observer = o }
	private.SetSent = func(request any, sent <-chan struct{}) { request.(*Request).sent = sent }
	private.CallSyntax = func(model any) chat.CallSyntax { return model.(*Model).syntax() }
	private.Template = func(model any, tools bool) string { return model.(*Model).template(tools) }
	private.Rows = func(prompt any) []prefix.Rows { return prompt.(*Prompt).rows() }
	private.Apart = func(prompt any, lead string) string { return prompt.(*Prompt).apart(lead) }
}
