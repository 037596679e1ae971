// Package values gives package dialogue the values that types of package chat keep private. Package
// chat sets the variables when it is initialized. A parameter of type any is a pointer to the type of
// package chat that the variable's name says.
package values

import "github.com/foretoken/foretoken/internal/jinja"

var (
	// Message is the message as templates see it. With text, arguments of calls are the text of a JSON
	// object, otherwise the object. With null, no content is null, otherwise an empty text.
	Message func(m any, text, null bool) jinja.Value
	// Tool and Arguments are where the fields of an object are.
	Tool, Arguments func(x any) **jinja.Map
	// ReadToolCall sets a tool call, at to, to v.
	ReadToolCall func(to any, v jinja.Value) error
)
