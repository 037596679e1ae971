package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Client asks an OpenAI-compatible server.
type Client struct {
	URL   string // of the API, such as http://127.0.0.1:8080/v1
	Model string
	Key   string // "": none
	HTTP  *http.Client
}

// Question is one request.
type Question struct {
	Prompt      string
	MaxTokens   int
	Temperature float64
	Seed        uint64
}

// Reply is what one request took. Times are since it was sent.
type Reply struct {
	First  time.Duration   // until the first text came
	Last   time.Duration   // until the last did
	Gaps   []time.Duration // between pieces of text
	Tokens int             // as the server counts, or the pieces where it does not
	Fault  string          // what went wrong, "" if nothing did
}

// perToken is the mean time of a token after the first; 0 if there is only one.
func (r *Reply) perToken() time.Duration {
	if r.Tokens < 2 {
		return 0
	}
	return (r.Last - r.First) / time.Duration(r.Tokens-1)
}

// Bounds on what a server may send.
const (
	maxLine  = 1 << 20
	maxReply = 256 << 20
	maxFault = 300 // characters of an error that are kept
)

// Ask sends a question and reads the streamed answer. A fault is part of the reply.
func (c *Client) Ask(ctx context.Context, q Question) Reply {
	var r Reply
	if err := c.ask(ctx, q, &r); err != nil {
		text := plain(err.Error())
		r.Fault = text[:min(len(text), maxFault)]
	}
	return r
}

func (c *Client) ask(ctx context.Context, q Question, r *Reply) error {
	body, err := json.Marshal(map[string]any{
		"model": c.Model, "messages": []map[string]string{{"role": "user", "content": q.Prompt}},
		"max_tokens": q.MaxTokens, "temperature": q.Temperature, "seed": q.Seed,
		"stream": true, "stream_options": map[string]bool{"include_usage": true},
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.URL, "/")+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	req.Header["X-Idempotency-Key"] = nil // not sent; asked again where the server had just closed an idle connection
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	start := time.Now()
	answer, err := c.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // it has been read
	if answer.StatusCode != http.StatusOK {
		return statusFault(answer)
	}
	return readStream(io.LimitReader(answer.Body, maxReply), r, func() time.Duration { return time.Since(start) })
}

// statusFault is the error for a status other than 200, with the server's words if it has any.
func statusFault(answer *http.Response) error {
	var body struct{ Error struct{ Message string } }
	data, _ := io.ReadAll(io.LimitReader(answer.Body, 64<<10)) // what cannot be read is not said
	if json.Unmarshal(data, &body) != nil || body.Error.Message == "" {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	return fmt.Errorf("status %d: %s", answer.StatusCode, body.Error.Message)
}

// chunk is the part of a streamed piece that matters here.
type chunk struct {
	Choices []struct {
		Delta struct {
			Content          string          `json:"content"`
			ReasoningContent string          `json:"reasoning_content"`
			Reasoning        string          `json:"reasoning"`
			ToolCalls        json.RawMessage `json:"tool_calls"`
		} `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// text reports whether the piece brings something that a user would see.
func (c *chunk) text() bool {
	for i := range c.Choices {
		d := &c.Choices[i].Delta
		if d.Content != "" || d.ReasoningContent != "" || d.Reasoning != "" || len(d.ToolCalls) > 0 && string(d.ToolCalls) != "null" {
			return true
		}
	}
	return false
}

// readStream reads server-sent events to the one that says it is done. clock is the time
// since the request was sent.
func readStream(in io.Reader, r *Reply, clock func() time.Duration) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 16<<10), maxLine)
	pieces, counted := 0, 0
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok {
			continue // blank lines, comments, other fields
		}
		if data = strings.TrimSpace(data); data == "[DONE]" {
			if r.Tokens = counted; counted == 0 {
				r.Tokens = pieces
			}
			if r.Tokens == 0 {
				return errors.New("the answer is empty")
			}
			return nil
		}
		var c chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			return fmt.Errorf("event %.80q: %w", data, err)
		}
		if c.Error != nil {
			return fmt.Errorf("in the stream: %s", c.Error.Message)
		}
		if c.Usage != nil {
			counted = max(c.Usage.CompletionTokens, 0)
		}
		if !c.text() {
			continue
		}
		now := clock()
		if pieces == 0 {
			r.First = now
		} else {
			r.Gaps = append(r.Gaps, now-r.Last)
		}
		r.Last = now
		pieces++
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("the stream ended before it was done")
}
