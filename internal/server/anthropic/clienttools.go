package anthropic

import (
	"encoding/json"
	"strings"
)

// clientTool is a tool that the protocol names by a type, as Anthropic's models know it, and that the
// client runs. Models here do not know it: the prompt describes its arguments.
type clientTool struct {
	kind        string // its type without the date
	description string
	schema      string
}

// clientTools are those that work without images.
var clientTools = []clientTool{
	{"bash_", "Runs a command in a shell that stays open between calls, and returns what it prints.", `{"type": "object", "properties": {
		"command": {"type": "string", "description": "what to run; not needed to restart"},
		"restart": {"type": "boolean", "description": "true to begin with a new shell"}}, "additionalProperties": false}`},
	{"text_editor_", "Shows and changes files of text.", `{"type": "object", "properties": {
		"command": {"type": "string", "enum": ["view", "create", "str_replace", "insert"]},
		"path": {"type": "string", "description": "of the file, or for view of a folder"},
		"view_range": {"type": "array", "items": {"type": "integer"}, "description": "for view: the first and the last line"},
		"file_text": {"type": "string", "description": "for create: all of the file"},
		"old_str": {"type": "string", "description": "for str_replace: what to replace, which the file has once"},
		"new_str": {"type": "string", "description": "for str_replace: what to put there"},
		"insert_line": {"type": "integer", "description": "for insert: after which line; 0 is before the first"},
		"insert_text": {"type": "string", "description": "for insert: what to add"}}, "required": ["command", "path"], "additionalProperties": false}`},
	{"memory_", "Keeps notes in files of a folder that outlives the conversation.", `{"type": "object", "properties": {
		"command": {"type": "string", "enum": ["view", "create", "str_replace", "insert", "delete", "rename"]},
		"path": {"type": "string"}, "view_range": {"type": "array", "items": {"type": "integer"}},
		"file_text": {"type": "string"}, "old_str": {"type": "string"}, "new_str": {"type": "string"},
		"insert_line": {"type": "integer"}, "insert_text": {"type": "string"},
		"old_path": {"type": "string"}, "new_path": {"type": "string"}}, "required": ["command"], "additionalProperties": false}`},
}

// clientToolOf is the tool of a type, nil if the client does not run it, or only with
// images.
func clientToolOf(kind string) *clientTool {
	for i := range clientTools {
		date, ok := strings.CutPrefix(kind, clientTools[i].kind)
		if ok && date != "" && strings.Trim(date, "0123456789") == "" {
			return &clientTools[i]
		}
	}
	return nil
}

// describe is the tool in the format of templates.
func (t *clientTool) describe(name string) string {
	quoted, _ := json.Marshal(name) // text
	description, _ := json.Marshal(t.description)
	return `{"type": "function", "function": {"name": ` + string(quoted) + `, "description": ` + string(description) + `, "parameters": ` + t.schema + `}}`
}
