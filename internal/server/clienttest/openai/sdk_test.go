// Package openai_test talks to our server with the Go client of the protocol's makers.
package openai_test

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

	client "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
	"github.com/foretoken/foretoken/internal/server/openai"
)

var (
	service *generate.Service
	site    *httptest.Server
)

func TestMain(m *testing.M) { generatetest.Main(m, openai.Register, &service, &site) }

// newClient is OpenAI's own client, with nothing changed but the address.
func newClient() client.Client {
	return client.NewClient(option.WithBaseURL(site.URL+"/v1/"), option.WithAPIKey("none"), option.WithMaxRetries(0))
}

// hello is a request that the tests vary.
func hello() client.ChatCompletionNewParams {
	return client.ChatCompletionNewParams{
		Model: generatetest.Tiny, Seed: client.Int(11), MaxCompletionTokens: client.Int(24),
		Messages: []client.ChatCompletionMessageParamUnion{
			client.DeveloperMessage("You tell stories."),
			client.UserMessage("Tell me a story about a dog."),
		},
	}
}

func TestSDKChat(t *testing.T) {
	c := newClient()
	whole, err := c.Chat.Completions.New(t.Context(), hello())
	if err != nil {
		t.Fatal(err)
	}
	if whole.Choices[0].Message.Content == "" || whole.Choices[0].FinishReason != "length" || whole.Usage.CompletionTokens != 24 || whole.SystemFingerprint == "" { //nolint:staticcheck // seeds go with it
		t.Errorf("got %s", whole.RawJSON())
	}
	q := hello()
	q.StreamOptions.IncludeUsage = client.Bool(true)
	stream := c.Chat.Completions.NewStreaming(t.Context(), q)
	var acc client.ChatCompletionAccumulator
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			t.Fatalf("chunk %s", stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if got := acc.Choices[0].Message.Content; got != whole.Choices[0].Message.Content || acc.Usage.TotalTokens != whole.Usage.TotalTokens {
		t.Errorf("the stream says %q, the whole %q", got, whole.Choices[0].Message.Content)
	}
}

func TestSDKSeesPictures(t *testing.T) {
	data, err := os.ReadFile("../../../../examples/pictures/house-and-heart.png")
	if err != nil {
		t.Fatal(err)
	}
	q := hello()
	q.Temperature = client.Float(0)
	q.Messages = []client.ChatCompletionMessageParamUnion{client.UserMessage([]client.ChatCompletionContentPartUnionParam{
		client.ImageContentPart(client.ChatCompletionContentPartImageImageURLParam{URL: "data:image/png;base64," + base64.StdEncoding.EncodeToString(data), Detail: "high"}),
		client.TextContentPart("What do you see?"),
	})}
	c := newClient()
	answer, err := c.Chat.Completions.New(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if got := answer.Choices[0].Message.Content; got != "There is a pink house and a black heart." {
		t.Errorf("it sees %q", got)
	}
}

func TestSDKToolsRoundTrip(t *testing.T) {
	c := newClient()
	q := hello()
	q.Model = generatetest.Thinker
	q.MaxCompletionTokens = client.Int(200)
	q.Tools = []client.ChatCompletionToolUnionParam{client.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name: "weather", Description: client.String("The weather somewhere"), Strict: client.Bool(true),
		Parameters: shared.FunctionParameters{
			"type": "object", "properties": map[string]any{"city": map[string]any{"enum": []string{"Rome", "Oslo"}}},
			"required": []string{"city"}, "additionalProperties": false,
		},
	})}
	q.ToolChoice.OfAuto = client.String("required")
	q.ParallelToolCalls = client.Bool(false)
	q.SetExtraFields(map[string]any{"enable_thinking": false})
	first, err := c.Chat.Completions.New(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	said := first.Choices[0]
	if said.FinishReason != "tool_calls" || len(said.Message.ToolCalls) != 1 {
		t.Fatalf("got %s", first.RawJSON())
	}
	call := said.Message.ToolCalls[0]
	var arguments struct{ City string }
	if err := json.Unmarshal([]byte(call.Function.Arguments), &arguments); err != nil || call.Function.Name != "weather" || arguments.City != "Rome" && arguments.City != "Oslo" {
		t.Fatalf("call %+v: %v", call, err)
	}
	q.Messages = append(q.Messages, said.Message.ToParam(), client.ToolMessage("It is sunny.", call.ID))
	q.ToolChoice.OfAuto = client.String("none")
	q.MaxCompletionTokens = client.Int(16)
	second, err := c.Chat.Completions.New(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if second.Choices[0].Message.Content == "" || len(second.Choices[0].Message.ToolCalls) > 0 || second.Usage.PromptTokens <= 0 {
		t.Errorf("got %s", second.RawJSON())
	}
}

func TestSDKStructuredOutput(t *testing.T) {
	c := newClient()
	q := hello()
	q.MaxCompletionTokens = client.Int(200)
	q.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
		Name: "dog", Strict: client.Bool(true), Schema: map[string]any{
			"type": "object", "required": []string{"kind", "age"}, "additionalProperties": false,
			"properties": map[string]any{"kind": map[string]any{"enum": []string{"poodle", "boxer"}}, "age": map[string]any{"type": "integer", "minimum": 1, "maximum": 20}},
		},
	}}
	whole, err := c.Chat.Completions.New(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	var dog struct {
		Kind string
		Age  int
	}
	d := json.NewDecoder(strings.NewReader(whole.Choices[0].Message.Content))
	d.DisallowUnknownFields()
	if err := d.Decode(&dog); err != nil || dog.Kind != "poodle" && dog.Kind != "boxer" || dog.Age < 1 || dog.Age > 20 {
		t.Errorf("%v: %s", err, whole.Choices[0].Message.Content)
	}
}

func TestSDKErrors(t *testing.T) {
	c := newClient()
	q := hello()
	q.Model = "gpt-9"
	_, err := c.Chat.Completions.New(t.Context(), q)
	var e *client.Error
	if !errors.As(err, &e) || e.StatusCode != http.StatusNotFound || e.Code != "model_not_found" || e.Param != "model" || e.Type != "invalid_request_error" {
		t.Errorf("got %v", err)
	}
	q = hello()
	q.Temperature = client.Float(-3)
	stream := c.Chat.Completions.NewStreaming(t.Context(), q)
	if stream.Next() || !errors.As(stream.Err(), &e) || e.StatusCode != http.StatusBadRequest || e.Param != "temperature" {
		t.Errorf("got %v", stream.Err())
	}
	_, err = c.Embeddings.New(t.Context(), client.EmbeddingNewParams{Model: generatetest.Tiny, Input: client.EmbeddingNewParamsInputUnion{OfString: client.String("x")}})
	if !errors.As(err, &e) || e.StatusCode != http.StatusBadRequest || !strings.Contains(e.Message, "embeddings are not supported") {
		t.Errorf("got %v", err)
	}
}

// A client that leaves frees its sequence: the run is over although its answer would have
// filled the context, and the engine has nothing left to do.
func TestSDKAbortFreesTheSequence(t *testing.T) {
	service, _, _ := generatetest.ServeSlow(t, openai.Register)
	reports := make(chan *generate.Error, 1)
	mux := http.NewServeMux()
	openai.Register(body.On(mux, func(http.ResponseWriter) generate.Caller {
		return generate.Caller{Reporter: func(_ *generate.Run, err error) { reports <- generate.Wrap(err) }}
	}), service)
	watched := httptest.NewServer(mux)
	defer watched.Close()
	model, done, err := service.Library.Use(t.Context(), generatetest.Slow)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	ctx, cancel := context.WithCancel(t.Context())
	c, q := newClient(), hello()
	q.Model, q.MaxCompletionTokens = generatetest.Slow, client.Int(900)
	q.LogitBias = map[string]int64{"8183": -100, "8185": -100} // it never ends by itself
	stream := c.Chat.Completions.NewStreaming(ctx, q, option.WithBaseURL(watched.URL+"/v1/"))
	for range 3 {
		if !stream.Next() {
			t.Fatal(stream.Err())
		}
	}
	cancel()
	for stream.Next() { // what has come by now
	}
	if !errors.Is(stream.Err(), context.Canceled) {
		t.Errorf("got %v", stream.Err())
	}
	if e := <-reports; e.Kind != generate.Canceled {
		t.Errorf("reported %v", e)
	}
	if s := model.Stats(); s.Canceled != 1 || s.Tokens > 800 {
		t.Errorf("%d canceled, %d tokens", s.Canceled, s.Tokens)
	}
}

func TestSDKModels(t *testing.T) {
	c := newClient()
	page, err := c.Models.List(t.Context())
	if err != nil || len(page.Data) != 3 || page.Data[0].ID != generatetest.Tiny {
		t.Errorf("%v: %+v", err, page)
	}
	one, err := c.Models.Get(t.Context(), generatetest.Alias)
	if err != nil || one.ID != generatetest.Alias || !strings.Contains(one.RawJSON(), `"alias_of":"tiny"`) {
		t.Errorf("%v: %+v", err, one)
	}
}

func TestSDKCompletions(t *testing.T) {
	c := newClient()
	whole, err := c.Completions.New(t.Context(), client.CompletionNewParams{
		Model: generatetest.Tiny, Seed: client.Int(2), MaxTokens: client.Int(10), Logprobs: client.Int(1),
		Prompt: client.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"Once upon a time", "The dog"}},
	})
	if err != nil || len(whole.Choices) != 2 || whole.Choices[1].Text == "" || len(whole.Choices[0].Logprobs.Tokens) != 10 {
		t.Errorf("%v: %+v", err, whole)
	}
}

func TestSDKResponses(t *testing.T) {
	c := newClient()
	q := responses.ResponseNewParams{
		Model: generatetest.Tiny, MaxOutputTokens: client.Int(20), Instructions: client.String("You tell stories."),
		Input: responses.ResponseNewParamsInputUnion{OfString: client.String("Tell me a story about a dog.")},
	}
	q.SetExtraFields(map[string]any{"seed": 4})
	first, err := c.Responses.New(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if first.OutputText() == "" || first.Status != "incomplete" || first.IncompleteDetails.Reason != "max_output_tokens" || first.Usage.OutputTokens != 20 {
		t.Errorf("got %s", first.RawJSON())
	}
	stream := c.Responses.NewStreaming(t.Context(), q)
	var text strings.Builder
	var last string
	for stream.Next() {
		e := stream.Current()
		if last = e.Type; e.Type == "response.output_text.delta" {
			text.WriteString(e.Delta)
		}
	}
	if err := stream.Err(); err != nil || text.String() != first.OutputText() || last != "response.incomplete" {
		t.Errorf("%v: the stream says %q, the whole %q", err, text.String(), first.OutputText())
	}
	q.PreviousResponseID = client.String(first.ID)
	q.Input.OfString = client.String("And then?")
	next, err := c.Responses.New(t.Context(), q)
	if err != nil || next.PreviousResponseID != first.ID || next.Usage.InputTokens <= first.Usage.InputTokens {
		t.Fatalf("%v: %+v", err, next)
	}
	again, err := c.Responses.Get(t.Context(), next.ID, responses.ResponseGetParams{})
	if err != nil || again.OutputText() != next.OutputText() {
		t.Errorf("%v: %+v", err, again)
	}
	if err := c.Responses.Delete(t.Context(), next.ID); err != nil {
		t.Error(err)
	}
	var e *client.Error
	if _, err = c.Responses.Get(t.Context(), next.ID, responses.ResponseGetParams{}); !errors.As(err, &e) || e.StatusCode != http.StatusNotFound {
		t.Errorf("got %v", err)
	}
}

func TestSDKNamespacesAndCustomTools(t *testing.T) {
	c := newClient()
	q := responses.ResponseNewParams{
		Model: generatetest.Thinker, Input: responses.ResponseNewParamsInputUnion{OfString: client.String("Go on.")},
		MaxOutputTokens: client.Int(200), Reasoning: shared.ReasoningParam{Effort: "none"},
		Tools: []responses.ToolUnionParam{
			{OfWebSearch: &responses.WebSearchToolParam{Type: "web_search"}},
			{OfNamespace: &responses.NamespaceToolParam{Name: "shop", Description: "A shop.", Tools: []responses.NamespaceToolToolUnionParam{
				{OfCustom: &responses.CustomToolParam{Name: "note", Format: shared.CustomToolInputFormatParamOfGrammar("start: /[ab]{2}/", "lark")}},
			}}},
		},
		ToolChoice: responses.ResponseNewParamsToolChoiceUnion{OfToolChoiceMode: client.Opt(responses.ToolChoiceOptionsRequired)},
	}
	q.ParallelToolCalls = client.Bool(false)
	q.SetExtraFields(map[string]any{"seed": 4})
	whole, err := c.Responses.New(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	call := whole.Output[0].AsCustomToolCall()
	if len(whole.Output) != 1 || call.Name != "note" || call.Namespace != "shop" || len(call.Input) != 2 || strings.Trim(call.Input, "ab") != "" {
		t.Fatalf("got %s", whole.RawJSON())
	}
	stream := c.Responses.NewStreaming(t.Context(), q)
	deltas, done := "", ""
	for stream.Next() {
		switch e := stream.Current().AsAny().(type) {
		case responses.ResponseCustomToolCallInputDeltaEvent:
			deltas += e.Delta
		case responses.ResponseCustomToolCallInputDoneEvent:
			done = e.Input
		}
	}
	if err := stream.Err(); err != nil || len(done) != 2 || deltas != done {
		t.Errorf("%v: deltas %q, done %q", err, deltas, done)
	}
}
