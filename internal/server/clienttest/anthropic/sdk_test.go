// Package anthropic_test talks to our server with the Go client of the protocol's makers.
package anthropic_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/foretoken/foretoken/internal/server/anthropic"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
)

var (
	service *generate.Service
	site    *httptest.Server
)

func TestMain(m *testing.M) { generatetest.Main(m, anthropic.Register, &service, &site) }

// client is Anthropic's own, as a program that changed nothing but the address would use it.
func client() sdk.Client {
	return sdk.NewClient(option.WithBaseURL(site.URL), option.WithAPIKey("none"), option.WithMaxRetries(0))
}

func say(model, text string, tokens int64) sdk.MessageNewParams {
	return sdk.MessageNewParams{
		Model: model, MaxTokens: tokens,
		Messages: []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock(text))},
	}
}

func TestSDKSeesPictures(t *testing.T) {
	data, err := os.ReadFile("../../../../examples/pictures/house-and-heart.png")
	if err != nil {
		t.Fatal(err)
	}
	p := say("tiny", "", 40)
	p.Temperature = sdk.Float(0)
	p.Messages = []sdk.MessageParam{sdk.NewUserMessage(
		sdk.NewImageBlockBase64("image/png", base64.StdEncoding.EncodeToString(data)), sdk.NewTextBlock("What do you see?"),
	)}
	c := client()
	m, err := c.Messages.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Content[0].AsText().Text; got != "There is a pink house and a black heart." {
		t.Errorf("it sees %q", got)
	}
}

func TestSDKChats(t *testing.T) {
	p := say("tiny", "Tell me a story about a cat.", 20)
	p.System = []sdk.TextBlockParam{{Text: "You tell stories."}}
	p.Temperature = sdk.Float(0)
	c := client()
	m, err := c.Messages.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Content) != 1 || m.Content[0].AsText().Text == "" || m.StopReason == "" || m.Usage.OutputTokens == 0 {
		t.Errorf("%s", m.RawJSON())
	}
	stream := c.Messages.NewStreaming(t.Context(), p)
	var sum sdk.Message
	for stream.Next() {
		if err := sum.Accumulate(stream.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if sum.Content[0].Text != m.Content[0].Text || sum.StopReason != m.StopReason || sum.Usage.OutputTokens != m.Usage.OutputTokens {
		t.Errorf("streamed\n%+v\nasked for at once\n%s", sum.Content, m.RawJSON())
	}
	count, err := c.Messages.CountTokens(t.Context(), sdk.MessageCountTokensParams{
		Model: p.Model, Messages: p.Messages, System: sdk.MessageCountTokensParamsSystemUnion{OfTextBlockArray: p.System},
	})
	if err != nil || count.InputTokens != m.Usage.InputTokens+m.Usage.CacheReadInputTokens {
		t.Errorf("count %+v, %v; usage %+v", count, err, m.Usage)
	}
}

func TestSDKCallsTools(t *testing.T) {
	p := say("thinker", "Weather in Rome?", 500)
	p.Tools = []sdk.ToolUnionParam{{OfTool: &sdk.ToolParam{
		Name: "weather", Description: sdk.String("Weather of a place"),
		InputSchema: sdk.ToolInputSchemaParam{
			Properties:  map[string]any{"place": map[string]any{"type": "string", "enum": []string{"Paris", "Rome"}}},
			Required:    []string{"place"},
			ExtraFields: map[string]any{"additionalProperties": false},
		},
	}}}
	p.ToolChoice = sdk.ToolChoiceUnionParam{OfAny: &sdk.ToolChoiceAnyParam{DisableParallelToolUse: sdk.Bool(true)}}
	c := client()
	m, err := c.Messages.New(t.Context(), p, option.WithJSONSet("seed", 3))
	if err != nil {
		t.Fatal(err)
	}
	if m.StopReason != sdk.StopReasonToolUse || len(m.Content) != 1 {
		t.Fatalf("%s", m.RawJSON())
	}
	use := m.Content[0].AsToolUse()
	var input struct{ Place string }
	if err := json.Unmarshal(use.Input, &input); err != nil || use.Name != "weather" || input.Place != "Paris" && input.Place != "Rome" {
		t.Fatalf("%s: %v", use.RawJSON(), err)
	}
	p.ToolChoice = sdk.ToolChoiceUnionParam{}
	p.MaxTokens = 8
	p.Messages = append(p.Messages, m.ToParam(), sdk.NewUserMessage(sdk.NewToolResultBlock(use.ID, "sunny", false)))
	if m, err = c.Messages.New(t.Context(), p); err != nil || m.Usage.OutputTokens == 0 {
		t.Errorf("after the result: %v, %v", m, err)
	}
}

func TestSDKThinks(t *testing.T) {
	p := say("thinker", "A cat?", 40)
	p.Thinking = sdk.ThinkingConfigParamOfEnabled(4)
	c := client()
	stream := c.Messages.NewStreaming(t.Context(), p, option.WithJSONSet("seed", 3))
	var m sdk.Message
	for stream.Next() {
		if err := m.Accumulate(stream.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if first := m.Content[0].AsThinking(); first.Thinking == "" || first.Signature == "" {
		t.Fatalf("%+v", m.Content)
	}
	p.Messages = append(p.Messages, m.ToParam(), sdk.NewUserMessage(sdk.NewTextBlock("More.")))
	if _, err := c.Messages.New(t.Context(), p); err != nil {
		t.Errorf("thinking that is sent back: %v", err)
	}
}

func TestSDKReadsErrors(t *testing.T) {
	c := client()
	_, err := c.Messages.New(t.Context(), say("absent", "Hi", 8))
	var e *sdk.Error
	if !errors.As(err, &e) || e.StatusCode != http.StatusNotFound || e.Type() != "not_found_error" {
		t.Errorf("unknown model: %v", err)
	}
	p := say("tiny", "Hi", 8)
	p.TopP = sdk.Float(3)
	if _, err = c.Messages.New(t.Context(), p); !errors.As(err, &e) || e.StatusCode != http.StatusBadRequest || e.Type() != "invalid_request_error" {
		t.Errorf("top_p 3: %v", err)
	}
}

// endless is a grammar whose answers take long.
var endless = map[string]any{"type": "json_schema", "schema": map[string]any{"type": "array", "items": map[string]any{"type": "integer"}, "minItems": 300}}

func TestSDKAbortFreesTheSequence(t *testing.T) {
	h, site, _ := generatetest.ServeSlow(t, anthropic.Register)
	m, done, err := h.Library.Use(t.Context(), generatetest.Slow)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	ctx, cancel := context.WithCancel(t.Context())
	c := client()
	stream := c.Messages.NewStreaming(ctx, say(generatetest.Slow, "Count.", 1000), option.WithBaseURL(site.URL), option.WithJSONSet("output_config.format", endless))
	for range 5 {
		if !stream.Next() {
			t.Fatal(stream.Err())
		}
	}
	cancel()
	_ = stream.Close()
	generatetest.AwaitCanceled(t, m, 0)
}

func TestSDKReadsErrorsInStreams(t *testing.T) {
	_, site, end := generatetest.ServeSlow(t, anthropic.Register)
	c := client()
	stream := c.Messages.NewStreaming(t.Context(), say(generatetest.Slow, "Count.", 1000), option.WithBaseURL(site.URL), option.WithJSONSet("output_config.format", endless))
	for range 5 {
		if !stream.Next() {
			t.Fatal(stream.Err())
		}
	}
	end() // the models leave while it is being answered
	for stream.Next() {
		continue
	}
	if err := stream.Err(); err == nil || !strings.Contains(err.Error(), "overloaded_error") {
		t.Errorf("the stream ended with %v", err)
	}
}
