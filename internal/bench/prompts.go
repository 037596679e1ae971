package bench

import (
	_ "embed"
	"encoding/json"
)

//go:embed prompts.json
var promptsFile []byte

// Classes are the kinds of prompts there are, in the order of reports: text that a model is
// sure of and text that it is not, since that decides acceptance.
func Classes() []string { return []string{"math", "story", "dialogue", "define", "code"} }

// Prompts are the texts of a class, none if there is no such class. Those of the class code
// are to be continued as they are, the others are messages of a user. The mathematics is from
// the test set of GSM8K (Cobbe and others, 2021; MIT license).
func Prompts(class string) []string {
	var all map[string][]string
	if err := json.Unmarshal(promptsFile, &all); err != nil {
		panic("bench: prompts.json: " + err.Error()) // it is part of the program
	}
	return all[class]
}

// Raw reports whether prompts of a class go without a chat template.
func Raw(class string) bool { return class == "code" }
