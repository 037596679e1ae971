package foretoken

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dialogue"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/private"
)

func init() {
	private.SetShared = func(options any, s private.Shared) { options.(*Options).shared = s }
	private.SetDevices = func(options any, more ...func() (backend.Backend, error)) { options.(*Options).devices = more }
	private.SetObserver = func(options any, o prefix.Observer) { options.(*Options).observer = o }
	private.SetTalks = func(options any, talks bool) { options.(*Options).talks = talks }
	private.SetSent = func(request any, sent <-chan struct{}) { request.(*Request).sent = sent }
	private.CallSyntax = func(model any) dialogue.CallSyntax { return model.(*Model).text.Syntax() }
	private.Template = func(model any, tools bool) string { return model.(*Model).text.Template(tools) }
	private.Rows = func(prompt any) []prefix.Rows { return prompt.(*Prompt).inner().Rows() }
	private.Apart = func(prompt any, lead string) string { return prompt.(*Prompt).inner().Apart(lead) }
}
