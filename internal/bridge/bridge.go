// Package bridge is how the programs of this module, its server and its command, get at
// parts of package foretoken that its users have no types for. Package foretoken sets the
// functions when it is loaded.
package bridge

import (
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/spec"
)

var (
	// Engine returns the engine of a *foretoken.Model.
	Engine func(model any) *engine.Engine
	// Speculation returns the speculation stats of a *foretoken.Answer that has ended.
	Speculation func(answer any) *spec.Stats
)
