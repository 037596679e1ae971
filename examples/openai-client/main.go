// Command openai-client asks a running foretoken serve as any client of OpenAI's would, and
// reads the stream with nothing but the standard library.
//
//	foretoken serve & go run ./examples/openai-client "Tell me a story."
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	body, err := json.Marshal(map[string]any{
		"stream": true, "max_tokens": 200,
		"messages": []map[string]string{{"role": "user", "content": strings.Join(os.Args[1:], " ")}},
	})
	if err != nil {
		return err
	}
	resp, err := http.Post("http://127.0.0.1:8080/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // nothing to lose
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return err
		}
		for _, c := range chunk.Choices {
			fmt.Print(c.Delta.Content)
		}
	}
	fmt.Println()
	return lines.Err()
}
