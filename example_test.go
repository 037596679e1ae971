package foretoken_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/sample"
)

// One answer: open a model, continue a text.
func Example() {
	ctx := context.Background()
	m, err := foretoken.Open(ctx, foretoken.Tiny, foretoken.Options{}) // or the folder of a checkpoint
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // nothing to lose
	text, err := m.Complete(ctx, foretoken.Request{
		Prompt: m.TextPrompt("Once upon a time"), MaxTokens: 20, Sampling: &sample.Options{}, // greedy
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n", text)
	// Output:
	// ", there was a little boy named Tim. Tim loved to play with his toy cars. One day"
}

// Log-probabilities: of each token, and of the most likely ones in its place.
func ExampleToken() {
	m, err := foretoken.Open(context.Background(), foretoken.Tiny, foretoken.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // nothing to lose
	answer, err := m.Generate(context.Background(), foretoken.Request{
		Prompt: m.TextPrompt("Once upon a"), MaxTokens: 2, Sampling: &sample.Options{}, LogProbs: true, TopLogProbs: 2,
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := answer.Wait(); err != nil {
		log.Fatal(err)
	}
	for _, token := range answer.Tokens {
		fmt.Printf("%q %.3f, then %q\n", m.Decode([]int32{token.ID}), token.LogProb, m.Decode([]int32{token.Top[1].ID}))
	}
	// Output:
	// " time" -0.000, then " a"
	// "," -0.145, then " there"
}

// A stream: the pieces of an answer as they come. A seed makes a sampled text the same in every
// run, with speculative decoding or without.
func ExampleAnswer_Pieces() {
	m, err := foretoken.Open(context.Background(), foretoken.Tiny, foretoken.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // nothing to lose
	sampling := m.Sampling()
	sampling.Seed = 1
	answer, err := m.Generate(context.Background(), foretoken.Request{
		Prompt: m.TextPrompt("The sun"), MaxTokens: 8, Sampling: &sampling,
	})
	if err != nil {
		log.Fatal(err)
	}
	for piece, err := range answer.Pieces() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q ", piece.Text)
	}
	fmt.Println()
	// Output:
	// " shone" " bright" "ly" "," " and" " the" " animals" " were"
}

// A conversation: every turn finds the ones before it in the prefix cache.
func ExampleModel_ChatPrompt() {
	m, err := foretoken.Open(context.Background(), foretoken.Tiny, foretoken.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // nothing to lose
	var talk foretoken.Conversation
	for _, question := range []string{"Tell me a story about a cat.", "What did the cat do then?"} {
		talk.Messages = append(talk.Messages, chat.Message{Role: "user", Content: chat.Text(question)})
		prompt, err := m.ChatPrompt(context.Background(), talk)
		if err != nil {
			log.Fatal(err)
		}
		answer, err := m.Generate(context.Background(), foretoken.Request{Prompt: prompt, MaxTokens: 16, Sampling: &sample.Options{}})
		if err != nil {
			log.Fatal(err)
		}
		if err := answer.Wait(); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q, prefix cached: %v\n", answer.Content(), answer.Result.Cached > 0)
		talk.Messages = append(talk.Messages, answer.Message())
	}
	// Output:
	// "Once upon a time, there was a little cat. The cat was very dirty", prefix cached: false
	// "The cat was dirty and dirty and it was very filthy. The cat", prefix cached: true
}

// An image: it stands in a message where the user put it, before or behind the words.
func ExampleModel_ChatPrompt_picture() {
	m, err := foretoken.Open(context.Background(), foretoken.Tiny, foretoken.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // nothing to lose
	file, err := os.ReadFile("examples/pictures/house-and-heart.png")
	if err != nil {
		log.Fatal(err)
	}
	picture := chat.Part{Media: &chat.Media{Files: [][]byte{file}}}
	prompt, err := m.ChatPrompt(context.Background(), foretoken.Conversation{Messages: []chat.Message{
		{Role: "user", Content: chat.Parts(picture, chat.Part{Text: "What do you see?"})},
	}})
	if err != nil {
		log.Fatal(err)
	}
	answer, err := m.Generate(context.Background(), foretoken.Request{Prompt: prompt, Sampling: &sample.Options{}})
	if err != nil {
		log.Fatal(err)
	}
	if err := answer.Wait(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Content())
	// Output:
	// There is a pink house and a black heart.
}

// Several at a time: requests that run together share the rounds, and each has the text that it
// has alone.
func ExampleModel_Generate_batch() {
	m, err := foretoken.Open(context.Background(), foretoken.Tiny, foretoken.Options{KVMemory: 1 << 30})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // nothing to lose
	prompts := []string{"The cat", "The dog", "The bird"}
	texts := make([]string, len(prompts))
	var all sync.WaitGroup
	for i, prompt := range prompts {
		all.Go(func() {
			answer, err := m.Generate(context.Background(), foretoken.Request{
				Prompt: m.TextPrompt(prompt), MaxTokens: 8, Sampling: &sample.Options{},
			})
			if err == nil {
				err = answer.Wait()
			}
			if err != nil {
				log.Fatal(err)
			}
			texts[i] = answer.Text()
		})
	}
	all.Wait()
	for i, prompt := range prompts {
		fmt.Printf("%s%s\n", prompt, texts[i])
	}
	// Output:
	// The cat was very happy. The cat said,
	// The dog was very happy and he wanted to show
	// The bird said, "I will help you,
}

// Structured output: the answer is a JSON value of the schema, whatever the model.
func ExampleRequest_grammar() {
	m, err := foretoken.Open(context.Background(), foretoken.Tiny, foretoken.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // nothing to lose
	schema := grammar.Schema([]byte(`{"type": "object", "required": ["animal", "legs"], "additionalProperties": false,
		"properties": {"animal": {"enum": ["bird", "cat", "fish"]}, "legs": {"type": "integer", "minimum": 0, "maximum": 4}}}`))
	answer, err := m.Generate(context.Background(), foretoken.Request{
		Prompt: m.TextPrompt(`A bird has 2 legs: {"animal": "bird", "legs": 2}. Once more: `), Grammar: schema, MaxTokens: 60, Sampling: &sample.Options{},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := answer.Wait(); err != nil {
		log.Fatal(err)
	}
	var found struct {
		Animal string
		Legs   int
	}
	if err := json.Unmarshal([]byte(answer.Text()), &found); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%+v\n", found)
	// Output:
	// {Animal:bird Legs:2}
}

// Figures: what speculative decoding did. Depth changes the speed, never the text.
func ExampleResult() {
	m, err := foretoken.Open(context.Background(), foretoken.Tiny, foretoken.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // nothing to lose
	for _, depth := range []foretoken.Depth{foretoken.DepthOff, 2} {
		answer, err := m.Generate(context.Background(), foretoken.Request{
			Prompt: m.TextPrompt("Once upon a time"), MaxTokens: 40, Sampling: &sample.Options{}, Depth: depth,
		})
		if err != nil {
			log.Fatal(err)
		}
		if err := answer.Wait(); err != nil {
			log.Fatal(err)
		}
		s := &answer.Result.Speculation
		fmt.Printf("depth %v: %d tokens in %d rounds, %d of %d drafts accepted\n", depth, answer.Result.Tokens, s.Rounds, s.Accepted, s.Drafted)
	}
	// Output:
	// depth off: 40 tokens in 40 rounds, 0 of 0 drafts accepted
	// depth 2: 40 tokens in 19 rounds, 21 of 33 drafts accepted
}
