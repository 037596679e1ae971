// Command generate opens a model, continues a text, streams it, and says what guessing did.
//
//	go run ./examples/generate "Once upon a time"
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/foretoken/foretoken"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	m, err := foretoken.Open(foretoken.Tiny, foretoken.Options{}) // or the folder of a checkpoint
	if err != nil {
		return err
	}
	defer m.Close() //nolint:errcheck // nothing to lose

	text := strings.Join(os.Args[1:], " ")
	if text == "" {
		text = "Once upon a time"
	}
	answer, err := m.Generate(context.Background(), foretoken.Request{
		Prompt: m.TextPrompt(text), MaxTokens: 120,
	})
	if err != nil {
		return err
	}
	fmt.Print(text)
	for piece, err := range answer.Pieces() {
		if err != nil {
			return err
		}
		fmt.Print(piece.Text)
	}
	r := answer.Result
	fmt.Printf("\n\n%d tokens (%s), %.0f per second; %d of %d guesses held; seed %d\n", r.Tokens, answer.Finish,
		float64(r.Tokens-1)/r.Decode.Seconds(), r.Speculation.Accepted, r.Speculation.Drafted, answer.Seed)
	return nil
}
