// Command batch answers several requests at a time, each constrained by a JSON schema: a round
// reads the weights once for all of them.
//
//	go run ./examples/batch
package main

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/grammar"
)

const schema = `{"type": "object", "required": ["animal", "legs"], "additionalProperties": false, "properties": {
	"animal": {"type": "string", "maxLength": 20}, "legs": {"type": "integer", "minimum": 0, "maximum": 8}}}`

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	m, err := foretoken.Open(context.Background(), foretoken.Tiny, foretoken.Options{KVMemory: -1})
	if err != nil {
		return err
	}
	defer m.Close() //nolint:errcheck // nothing to lose

	animal := grammar.Schema([]byte(schema))
	var all sync.WaitGroup
	for i, text := range []string{"A cat is", "A bird is", "A fish is", "A spider is"} {
		all.Go(func() {
			sampling := m.Sampling()
			sampling.Seed = uint64(i) // the same text in every run, and in any batch
			answer, err := m.Generate(context.Background(), foretoken.Request{
				Prompt: m.TextPrompt(text + " "), MaxTokens: 100, Grammar: animal, Sampling: &sampling,
			})
			if err == nil {
				err = answer.Wait()
			}
			if err != nil {
				log.Print(err)
				return
			}
			fmt.Printf("%s %s (in rounds of %.1f sequences)\n", text, answer.Text(), answer.Result.Batch)
		})
	}
	all.Wait()
	s := m.Stats()
	fmt.Printf("%d rounds, %d tokens\n", s.Rounds, s.Tokens)
	return nil
}
