// Command generate continues a text, streams it, and shows the speculation stats.
//
//	go run ./examples/generate "Once upon a time"
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/foretoken/foretoken"
)

func main() {
	if err := run(cmp.Or(strings.Join(os.Args[1:], " "), "Once upon a time")); err != nil {
		log.Fatal(err)
	}
}

func run(text string) error {
	m, err := foretoken.Open(context.Background(), foretoken.Tiny, foretoken.Options{}) // or the folder of a checkpoint
	if err != nil {
		return err
	}
	defer m.Close() //nolint:errcheck // nothing to lose
	answer, err := m.Generate(context.Background(), foretoken.Request{Prompt: m.TextPrompt(text), MaxTokens: 120})
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
	r, s := answer.Result, &answer.Result.Speculation
	fmt.Printf("\n\n%d tokens (%s), %.0f per second; %d of %d drafts accepted; seed %d\n", r.Tokens, answer.Finish,
		float64(r.Tokens-1)/r.Decode.Seconds(), s.Accepted, s.Drafted, answer.Seed)
	return nil
}
