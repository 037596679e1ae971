// Package private is the part of package foretoken's API that only the programs of this module use:
// a server needs it, programs that embed the library do not. Package foretoken sets the variables
// when it is initialized. A parameter of type any is a pointer to the type of package foretoken that
// its name says.
package private

import (
	"context"
	"crypto/sha256"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dialogue"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/prefix/store"
)

// Store is a store of prefixes that several processes share.
type Store interface {
	store.Store
	// OpenSecret returns the secret of all processes that share the store. Salts are mixed with it.
	OpenSecret(ctx context.Context) ([sha256.Size]byte, error)
	Close()
}

// Shared says which store a prefix cache shares with other processes.
type Shared struct {
	Open func(ctx context.Context) (Store, error) // nil: there is none
	Uses int                                      // how often a prefix is used before it is written there, 1 or more; 0: 2
}

var (
	// SetShared adds a shared store to the prefix cache of a model to be opened.
	SetShared func(options any, s Shared)
	// SetDevices adds devices to those of the machine for a model to be opened: each computes some of its layers. The
	// functions open them whenever the model is loaded, and closing the model closes them.
	SetDevices func(options any, more ...func() (backend.Backend, error))
	// SetObserver tells o which prefixes the cache of a model to be opened can resume. It is told
	// nothing of requests with a salt. The model waits for its methods, which are called one at a time.
	SetObserver func(options any, o prefix.Observer)
	// SetTalks has a model to be opened refused, before its weights are read, if it has no chat template.
	SetTalks func(options any, talks bool)
	// SetSent delays the prefill of a conversation's next turn until sent is closed, which is when the
	// answer to request has been delivered. Without it, all pieces having been yielded is enough.
	SetSent func(request any, sent <-chan struct{})
	// CallSyntax is how the template of model teaches it to write tool calls.
	CallSyntax func(model any) dialogue.CallSyntax
	// Template is the source of the chat template of model for a conversation with tools or without
	// them; "": it has none.
	Template func(model any, tools bool) string
	// Rows are the places of images and videos among the tokens of prompt, ascending.
	Rows func(prompt any) []prefix.Rows
	// Apart is the rest of lead that is still to be written before the answer to prompt: the template
	// writes lead between a think block and the text that follows. It is "" if there is no block.
	Apart func(prompt any, lead string) string
)
