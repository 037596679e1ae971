package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/terminal"
	"github.com/foretoken/foretoken/internal/filetest"
)

// asProgram is the variable that makes the test binary be the program itself.
const asProgram = "FORETOKEN_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(runTests(m))
}

// runTests runs the tests with a folder for state that is not the user's.
func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "foretoken-state")
	if err == nil {
		err = os.Setenv("XDG_STATE_HOME", dir)
	}
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	return m.Run()
}

// outcome is the output and the exit code of a command.
type outcome struct {
	out, err string
	code     int
}

// runIn runs the program in this process. stdin is nil for one that is not piped.
func runIn(t *testing.T, stdin io.Reader, args ...string) outcome {
	t.Helper()
	if stdin == nil {
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = null.Close() }()
		stdin = null
	}
	var out, stderr bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(&out)
	root.SetErr(&stderr)
	code := execute(t.Context(), root, &stderr)
	return outcome{out.String(), stderr.String(), code}
}

// generate runs foretoken generate and requires success. One thread is enough for a few
// tokens, and leaves the rest to the other tests.
func generate(t *testing.T, args ...string) string {
	t.Helper()
	o := runIn(t, nil, append([]string{"generate", "--threads", "1"}, args...)...)
	if o.code != exitOK {
		t.Fatalf("generate %q: exit code %d, %s", args, o.code, o.err)
	}
	return o.out
}

// written is a report as its readers see it.
type written struct {
	terminal.Report
	MTP *writtenStats `json:"mtp"`
}

type writtenStats struct {
	Rounds             int     `json:"rounds"`
	Drafted            int     `json:"drafted"`
	Accepted           int     `json:"accepted"`
	AcceptedByPosition []int   `json:"accepted_by_position"`
	TokensPerRound     float64 `json:"tokens_per_round"`
	MeanDepth          float64 `json:"mean_depth"`
	Rule               string  `json:"rule"`
	Drafter            string  `json:"drafter"`
	DraftMS            float64 `json:"draft_ms"`
	VerifyMS           float64 `json:"verify_ms"`
	DraftVocab         int     `json:"draft_vocab"`
	Beta               float64 `json:"beta"`
	Delta              float64 `json:"delta"`
	SpeedupEstimate    float64 `json:"speedup_estimate"`
	Copied             int     `json:"copied"`
	CopiedAccepted     int     `json:"copied_accepted"`
}

// generateJSON runs foretoken generate --json.
func generateJSON(t *testing.T, args ...string) written {
	t.Helper()
	var r written
	d := json.NewDecoder(strings.NewReader(generate(t, append(args, "--json")...)))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if d.More() {
		t.Fatal("more than one JSON object")
	}
	return r
}

// ids is a short prompt: "Once upon a" of the embedded model.
var ids = []string{"--prompt-ids", "628,627,258"}

func with(common []string, more ...string) []string { return append(slices.Clone(common), more...) }

// The shape of the object is a promise to scripts; numbers that depend on the machine or on
// the arithmetic are left out.
func TestGenerateJSONShape(t *testing.T) {
	shape := with(ids, "--temp", "0", "--seed", "7", "--max-tokens", "2", "--compute", "float32", "--logprobs", "1", "--json")
	const measured = `("(?:logprob|[a-z_]+_ms|[a-z_]+_tok_s|beta|delta|speedup_estimate)"):-?[0-9.e-]+`
	out := generate(t, with(shape, "--mtp=off")...)
	out = regexp.MustCompile(measured).ReplaceAllString(out, "$1:N")
	out = regexp.MustCompile(`"0x[0-9a-f]{16}"`).ReplaceAllString(out, `"0xHASH"`)
	const want = `{"model":"tiny","prompt_ids":[628,627,258],"token_ids":[470,11],"text":" time,","finish_reason":"length","seed":7,` +
		`"logprobs":[{"id":470,"token":" time","logprob":N,"top":[{"id":470,"token":" time","logprob":N}]},` +
		`{"id":11,"token":",","logprob":N,"top":[{"id":11,"token":",","logprob":N}]}],` +
		`"logits_hash":"0xHASH","timings":{"load_ms":N,"queue_ms":N,"prompt_tokens":3,"prefill_ms":N,"prefill_tok_s":N,` +
		`"generated_tokens":2,"decode_ms":N,"decode_tok_s":N},"mtp":null}` + "\n"
	if out != want {
		t.Errorf("got  %swant %s", out, want)
	}
	_, out, _ = strings.Cut(generate(t, with(shape, "--max-tokens", "4", "--mtp-depth", "1")...), `"mtp":`)
	out = regexp.MustCompile(measured).ReplaceAllString(out, "$1:N")
	const stats = `{"rounds":3,"drafted":1,"accepted":1,"accepted_by_position":[1],"tokens_per_round":1.3333333333333333,"mean_depth":0.3333333333333333,` +
		`"rule":"exact","drafter":"auto","draft_vocab":2096,"draft_ms":N,"verify_ms":N,"beta":N,"delta":N,"speedup_estimate":N}}` + "\n"
	if out != stats {
		t.Errorf("got  %swant %s", out, stats)
	}
}

func TestGenerateSeedDecidesText(t *testing.T) {
	hot := with(ids, "--temp", "1.5", "--top-p", "1", "--top-k", "0", "--max-tokens", "6")
	first := generateJSON(t, with(hot, "--seed", "11", "--threads", "1")...)
	again := generateJSON(t, with(hot, "--seed", "11", "--threads", "2")...)
	other := generateJSON(t, with(hot, "--seed", "12")...)
	if !slices.Equal(first.TokenIDs, again.TokenIDs) || first.LogitsHash != again.LogitsHash {
		t.Errorf("seed 11 gave %v %s and %v %s", first.TokenIDs, first.LogitsHash, again.TokenIDs, again.LogitsHash)
	}
	if slices.Equal(first.TokenIDs, other.TokenIDs) {
		t.Errorf("seeds 11 and 12 gave the same %v", first.TokenIDs)
	}
	if first.Seed != 11 {
		t.Errorf("seed 11 is reported as %d", first.Seed)
	}
	if first.LogProbs != nil {
		t.Errorf("unrequested log-probabilities: %v", first.LogProbs)
	}
	drawn := generateJSON(t, with(hot, "--max-tokens", "3")...)
	repeated := generateJSON(t, with(hot, "--max-tokens", "3", "--seed", uitoa(drawn.Seed))...)
	if !slices.Equal(drawn.TokenIDs, repeated.TokenIDs) {
		t.Errorf("the reported seed %d gave %v, then %v", drawn.Seed, drawn.TokenIDs, repeated.TokenIDs)
	}
}

// The hash must cover only the reported tokens, however far the engine was ahead.
func TestGenerateStopText(t *testing.T) {
	greedy := with(ids, "--temp", "0")
	whole := generateJSON(t, with(greedy, "--max-tokens", "8")...)
	at := len(whole.Text) / 2
	stop := whole.Text[at : at+3]
	before, _, _ := strings.Cut(whole.Text, stop)
	cut := generateJSON(t, with(greedy, "--max-tokens", "200", "--stop", "nowhere", "--stop", stop)...)
	if cut.Text != before || cut.FinishReason != "stop" {
		t.Errorf("stop %q: got %q (%s), want %q", stop, cut.Text, cut.FinishReason, before)
	}
	n := len(cut.TokenIDs)
	if n == 0 || n > len(whole.TokenIDs) || !slices.Equal(cut.TokenIDs, whole.TokenIDs[:n]) {
		t.Fatalf("stop %q: tokens %v are not the beginning of %v", stop, cut.TokenIDs, whole.TokenIDs)
	}
	short := generateJSON(t, with(greedy, "--max-tokens", uitoa(uint64(n)))...)
	if cut.LogitsHash != short.LogitsHash {
		t.Errorf("stopped by text: hash %s, by count: %s", cut.LogitsHash, short.LogitsHash)
	}
	if text := generate(t, with(greedy, "--max-tokens", "200", "--stop", stop)...); text != before {
		t.Errorf("as text: got %q, want %q", text, before)
	}
}

func TestGenerateEndToken(t *testing.T) {
	const end = 8185
	always := with(ids, "--temp", "0", "--logit-bias", uitoa(end)+"=1000", "--max-tokens", "3")
	r := generateJSON(t, always...)
	if !slices.Equal(r.TokenIDs, []int32{end}) || r.Text != "" || r.FinishReason != "stop" {
		t.Errorf("end token: got %v %q (%s)", r.TokenIDs, r.Text, r.FinishReason)
	}
	if r.Timings.DecodeTokS != nil {
		t.Errorf("one token has a rate of decoding: %v", *r.Timings.DecodeTokS)
	}
	r = generateJSON(t, with(always, "--ignore-eos")...)
	if !slices.Equal(r.TokenIDs, []int32{end, end, end}) || r.Text != "" || r.FinishReason != "length" {
		t.Errorf("with --ignore-eos: got %v %q (%s)", r.TokenIDs, r.Text, r.FinishReason)
	}
}

func TestGenerateLogProbs(t *testing.T) {
	r := generateJSON(t, with(ids, "--temp", "0", "--max-tokens", "3", "--logprobs", "3")...)
	if len(r.LogProbs) != 3 {
		t.Fatalf("%d log-probabilities for 3 tokens", len(r.LogProbs))
	}
	for i, l := range r.LogProbs {
		if l.ID != r.TokenIDs[i] || len(l.Top) != 3 || l.Top[0].ID != l.ID || *l.LogProb != *l.Top[0].LogProb || *l.LogProb >= 0 {
			t.Errorf("token %d of a greedy text: %+v", i, l)
		}
		if *l.Top[0].LogProb < *l.Top[1].LogProb || *l.Top[1].LogProb < *l.Top[2].LogProb {
			t.Errorf("token %d: alternatives are not in order: %+v", i, l.Top)
		}
	}
}

func TestGenerateQuantizeChangesArithmetic(t *testing.T) {
	if testing.Short() {
		t.Skip("opens the model many times")
	}
	one := with(ids, "--temp", "0", "--max-tokens", "1")
	hashes := map[string]string{}
	for _, how := range [][]string{{}, {"--compute", "float32"}, {"--quantize", "4"}} {
		r := generateJSON(t, with(one, how...)...)
		if other, ok := hashes[r.LogitsHash]; ok {
			t.Errorf("%v gives the logits of %s", how, other)
		}
		hashes[r.LogitsHash] = strings.Join(how, " ")
	}
}

func TestGenerateReadsConversations(t *testing.T) {
	if testing.Short() {
		t.Skip("opens the model many times")
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		return filetest.Write(t, filepath.Join(dir, name), text)
	}
	const array = `[{"role": "system", "content": "Be nice."}, {"role": "user", "content": "Hi."}]`
	one := []string{"generate", "--threads", "1", "--temp", "0", "--max-tokens", "1", "--json"}
	cases := map[string]struct {
		stdin io.Reader
		args  []string
	}{
		"array":          {nil, []string{"--messages", write("array.json", array)}},
		"object":         {nil, []string{"--messages", write("object.json", `{"messages": `+array+`, "tools": null}`)}},
		"standard input": {strings.NewReader(array), []string{"--messages", "-"}},
		"system flag":    {nil, []string{"--messages", write("user.json", `[{"role": "user", "content": "Hi."}]`), "--system", "Be nice."}},
		"prompt":         {nil, []string{"--system", "Be nice.", "--prompt", "Hi."}},
		"piped prompt":   {strings.NewReader("Hi.\n"), []string{"--system-prompt", "Be nice."}},
		"piped by name":  {strings.NewReader("Hi.\r\n"), []string{"--system", "Be nice.", "--prompt", "-"}},
		"written out": {nil, []string{
			"--no-chat-template", "--prompt",
			"<|im_start|>system\nBe nice.<|im_end|>\n<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assistant\n",
		}},
	}
	var want []int32
	for name, c := range cases {
		o := runIn(t, c.stdin, append(one, c.args...)...)
		var r terminal.Report
		if err := json.Unmarshal([]byte(o.out), &r); err != nil {
			t.Fatalf("%s: %v; %s", name, err, o.err)
		}
		if want == nil {
			want = r.PromptIDs
		}
		if !slices.Equal(r.PromptIDs, want) {
			t.Errorf("%s: the prompt is %v, in another form %v", name, r.PromptIDs, want)
		}
	}
}

func TestGenerateWarnsOfUnusedFields(t *testing.T) {
	body := strings.NewReader(`{"messages": [{"role": "user", "content": "Hi."}], "temperature": 2}`)
	o := runIn(t, body, "generate", "--messages", "-", "--max-tokens", "1", "--json")
	var r terminal.Report
	if err := json.Unmarshal([]byte(o.out), &r); err != nil {
		t.Fatalf("%v; %s", err, o.err)
	}
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "temperature") || !strings.Contains(o.err, "foretoken: warning: "+r.Warnings[0]) {
		t.Errorf("warnings %q, standard error %q", r.Warnings, o.err)
	}
}

// Ctrl-C ends the context; the text so far is printed, and the exit code reports it.
func TestGenerateCanceledPrintsWhatThereWas(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &cancelWriter{cancel: cancel}
	root := newRootCommand()
	root.SetArgs(append([]string{"generate", "--isa", "generic", "--temp", "0", "--max-tokens", "3000", "--ignore-eos"}, ids...)) // which takes minutes
	root.SetOut(out)
	var stderr bytes.Buffer
	if code := execute(ctx, root, &stderr); code != exitInterrupted || stderr.Len() > 0 {
		t.Errorf("exit code %d, %q", code, &stderr)
	}
	if string(out.text) != " time" {
		t.Errorf("printed %.100q after the first word was to be the last", out.text)
	}
}

// cancelWriter cancels when something is written.
type cancelWriter struct {
	text   []byte
	cancel context.CancelFunc
}

func (w *cancelWriter) Write(p []byte) (int, error) {
	w.cancel()
	w.text = append(w.text, p...)
	return len(p), nil
}

func TestRunAnswersOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("opens the model many times")
	}
	plain := []string{"run", "--threads", "1", "--no-chat-template", "--temp", "0", "--max-tokens", "2"}
	cases := map[string]struct {
		stdin io.Reader
		args  []string
		want  string // of the prompt
	}{
		"argument":    {nil, []string{"Once upon a"}, "Once upon a"},
		"arguments":   {nil, []string{"Once", "upon", "a"}, "Once upon a"},
		"piped":       {strings.NewReader("Once upon a\n"), nil, "Once upon a"},
		"both":        {strings.NewReader("Once upon a\n"), []string{"A story:"}, "A story:\n\nOnce upon a"},
		"piped empty": {strings.NewReader(""), []string{"Once upon a"}, "Once upon a"},
	}
	texts := map[string]string{} // by prompt
	for name, c := range cases {
		o := runIn(t, c.stdin, append(plain, c.args...)...)
		if texts[c.want] == "" {
			texts[c.want] = generate(t, "--no-chat-template", "--temp", "0", "--max-tokens", "2", "--prompt", c.want)
		}
		want := texts[c.want] + "\n"
		if o.code != exitOK || o.out != want || o.err != "" {
			t.Errorf("%s: %+v, want %q", name, o, want)
		}
	}
	o := runIn(t, nil, append(plain, "Once upon a", "--verbose", "--seed", "3")...)
	if !strings.Contains(o.err, "2 tokens (length), ") || !strings.Contains(o.err, "; seed 3\n") {
		t.Errorf("--verbose says %q", o.err)
	}
}

// fullWriter is a disk without space.
type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestGenerateOutputErrorEndsIt(t *testing.T) {
	for _, more := range [][]string{{"--ignore-eos", "--max-tokens", "3000"}, {"--max-tokens", "1", "--json"}} {
		root := newRootCommand()
		root.SetArgs(append([]string{"generate"}, with(ids, more...)...))
		root.SetOut(fullWriter{})
		var stderr bytes.Buffer
		if code := execute(t.Context(), root, &stderr); code != exitError || !strings.HasPrefix(stderr.String(), "foretoken: standard output: ") {
			t.Errorf("%v: exit code %d, %q", more, code, &stderr)
		}
	}
}
