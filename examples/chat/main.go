// Command chat is a conversation on a terminal. The turns before are found in the prefix cache.
//
//	go run ./examples/chat
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
)

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

	var talk foretoken.Conversation
	for lines := bufio.NewScanner(os.Stdin); ; {
		fmt.Print("> ")
		if !lines.Scan() {
			return lines.Err()
		}
		talk.Messages = append(talk.Messages, chat.Message{Role: "user", Content: chat.Text(lines.Text())})
		prompt, err := m.ChatPrompt(context.Background(), talk)
		if err != nil {
			return err
		}
		answer, err := m.Generate(context.Background(), foretoken.Request{Prompt: prompt, MaxTokens: 200})
		if err != nil {
			return err
		}
		for piece, err := range answer.Pieces() {
			if err != nil {
				return err
			}
			fmt.Print(piece.Text)
		}
		fmt.Printf("\n[%d tokens of the prompt, %d of them cached]\n", answer.Result.Prompt, answer.Result.Cached)
		talk.Messages = append(talk.Messages, answer.Message())
	}
}
