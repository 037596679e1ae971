package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/spec"
)

// Exactness, from the command line: with any drafter and depth, the text and the bits of
// the logits are those of plain decoding.
func TestGenerateDraftingChangesNothing(t *testing.T) {
	tastes := map[string][]string{
		"greedy": {"--temp", "0", "--stop", "nowhere", "--stop", "oy car"},
		"warm":   {"--temp", "0.8", "--top-k", "20", "--top-p", "0.95", "--min-p", "0.01", "--seed", "5"},
		"hot": {
			"--temp", "1.5", "--top-p", "1", "--seed", "6", "--repetition-penalty", "1.3", "--repetition-context-size", "20",
			"--presence-penalty", "0.5", "--frequency-penalty", "0.2", "--logit-bias", "11=2", "--logprobs", "1",
			"--xtc-probability", "0.5",
		},
	}
	hows := [][]string{
		{"--mtp=on", "--mtp-depth", "3", "--threads", "2"},
		{"--mtp=on", "--mtp-depth", "8", "--draft-vocab", "300"},
		{"--mtp=auto"},
		{"--draft", "auto", "--mtp-depth", "4"},
		{"--mtp=off", "--draft", "ngram", "--mtp-depth", "4"},
	}
	if testing.Short() {
		hows = hows[:1]
	}
	for name, taste := range tastes {
		same := with(ids, append(taste, "--max-tokens", "30")...)
		plain := generateJSON(t, with(same, "--mtp=off")...)
		if plain.MTP != nil {
			t.Errorf("%s: stats without draft tokens: %+v", name, plain.MTP)
		}
		if stopped := plain.FinishReason == "stop" && strings.HasSuffix(plain.Text, " with his t"); stopped != (name == "greedy") {
			t.Errorf("%s: ended by %s after %q", name, plain.FinishReason, plain.Text)
		}
		for _, how := range hows {
			r := generateJSON(t, with(same, how...)...)
			if !slices.Equal(r.TokenIDs, plain.TokenIDs) || r.LogitsHash != plain.LogitsHash || r.Text != plain.Text || r.FinishReason != plain.FinishReason {
				t.Errorf("%s, %v: %v %s %q, plainly %v %s %q", name, how, r.TokenIDs, r.LogitsHash, r.Text, plain.TokenIDs, plain.LogitsHash, plain.Text)
			}
			for i, l := range r.LogProbs {
				if *l.LogProb != *plain.LogProbs[i].LogProb {
					t.Errorf("%s, %v: log-probability %d is %v, plainly %v", name, how, i, *l.LogProb, *plain.LogProbs[i].LogProb)
				}
			}
			if r.MTP == nil {
				t.Fatalf("%s, %v: no stats", name, how)
			}
			checkStats(t, fmt.Sprint(name, how), r.MTP)
		}
	}
}

// checkStats checks properties of any speculation stats.
func checkStats(t *testing.T, name string, m *writtenStats) {
	t.Helper()
	sum := 0
	for _, n := range m.AcceptedByPosition {
		sum += n
	}
	if !slices.IsSortedFunc(m.AcceptedByPosition, func(a, b int) int { return b - a }) || sum > m.Accepted ||
		m.Accepted > m.Drafted || m.Rounds < 1 || m.MeanDepth > spec.MaxCopy || m.TokensPerRound < 1 ||
		m.DraftMS < 0 || m.VerifyMS <= 0 {
		t.Errorf("%s: stats %+v", name, *m)
	}
}

func TestGenerateStatsNameTheDrafter(t *testing.T) {
	common := with(ids, "--temp", "0", "--max-tokens", "40")
	m := generateJSON(t, with(common, "--draft", "mtp", "--mtp-depth", "3", "--mtp-accept", "ratio")...).MTP
	checkStats(t, "ratio", m)
	if m.Drafter != "mtp" || m.Rule != "ratio" || len(m.AcceptedByPosition) != 3 || m.Accepted < 10 || m.MeanDepth < 2 {
		t.Errorf("depth 3 with the ratio rule: %+v", *m)
	}
	if m.DraftMS <= 0 || m.VerifyMS <= 0 {
		t.Errorf("times: %+v", *m)
	}
	// The tokens of this text are not all among the hundred most frequent ones.
	few := generateJSON(t, with(common, "--mtp-depth", "3", "--draft-vocab", "100")...).MTP
	all := generateJSON(t, with(common, "--mtp-depth", "3", "--draft-vocab", "all")...).MTP
	if few.Accepted >= all.Accepted {
		t.Errorf("with 100 tokens %d drafts are accepted, with all %d", few.Accepted, all.Accepted)
	}
	// Every round has draft tokens, so only a self-test can know the cost of a plain one.
	full := with(ids, "--temp", "0", "--max-tokens", "9", "--mtp-depth", "2", "--ignore-eos")
	if m = generateJSON(t, full...).MTP; m.Beta != 0 || m.SpeedupEstimate != 0 {
		t.Errorf("unmeasured costs: %+v", *m)
	}
	m = generateJSON(t, with(full, "--model", filepath.FromSlash("../../internal/models/tiny"))...).MTP
	if m.Beta <= 0 || m.Delta <= 0 || m.SpeedupEstimate <= 0 {
		t.Errorf("costs after a self-test: %+v", *m)
	}
	if r := generateJSON(t, with(common, "--mtp=on", "--mtp-depth", "0")...); r.MTP != nil {
		t.Errorf("depth 0: %+v", *r.MTP)
	}
}

// The lookup is for a text that repeats itself.
func TestGenerateLookupDraftsRepetition(t *testing.T) {
	for _, draft := range []string{"ngram", "auto"} {
		r := generateJSON(t, with(ids, "--temp", "0", "--max-tokens", "60", "--logit-bias", "470=1000", "--draft", draft, "--mtp-depth", "5")...)
		checkStats(t, draft, r.MTP)
		if r.MTP.Drafter != draft || r.MTP.Accepted < 40 || r.MTP.TokensPerRound < 3 {
			t.Errorf("one word, again and again: %+v", *r.MTP)
		}
	}
}

// rewriteTiny is a checkpoint folder made of the embedded model's, with tensors of the head
// changed, or left out where edit reports false.
func rewriteTiny(t *testing.T, config func(string) string, edit func(name string, data []byte) bool) string {
	t.Helper()
	from := golden.Open(t, filepath.FromSlash("../../internal/models/tiny"))
	var decls []checkpoint.Decl
	var contents [][]byte
	for _, name := range from.Tensors() {
		tensor, err := from.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		data := bytes.Clone(tensor.Data)
		if _, short, ok := strings.Cut(name, "mtp."); !ok || edit(short, data) {
			decls = append(decls, checkpoint.Decl{Name: name, Type: tensor.Type, Shape: tensor.Shape})
			contents = append(contents, data)
		}
	}
	replaced := map[string]string{
		"config.json": config(string(from.Config())), "model.safetensors.index.json": "",
		"model.safetensors": golden.Tensors(t, decls, contents, from.Metadata(from.Files()[0])),
	}
	for _, shard := range from.Files() {
		replaced[shard] = ""
	}
	return linkTiny(t, replaced)
}

func asIs(text string) string { return text }

func TestGenerateWithoutHead(t *testing.T) {
	drop := func(string, []byte) bool { return false }
	dropped := rewriteTiny(t, asIs, drop)
	one := with(ids, "--temp", "0", "--max-tokens", "8", "--model", dropped)
	r := generateJSON(t, one...)
	if r.MTP == nil || r.MTP.Drafter != "ngram" || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "declares a multi-token-prediction head") {
		t.Errorf("without a head: %+v, warnings %q", r.MTP, r.Warnings)
	}
	if whole := generateJSON(t, with(ids, "--temp", "0", "--max-tokens", "8")...); !slices.Equal(whole.TokenIDs, r.TokenIDs) {
		t.Errorf("without its head the model says %v, with it %v", r.TokenIDs, whole.TokenIDs)
	}
	for _, draft := range []string{"ngram", "auto"} {
		if r := generateJSON(t, with(one, "--draft", draft)...); r.MTP == nil || r.MTP.Drafter != "ngram" {
			t.Errorf("--draft %s without a head: %+v", draft, r.MTP)
		}
	}
	never := rewriteTiny(t, func(c string) string {
		return strings.ReplaceAll(c, `"mtp_num_hidden_layers": 1`, `"mtp_num_hidden_layers": 0`)
	}, drop)
	for _, c := range []struct{ dir, flag, says string }{
		{dropped, "--mtp=on", "the weights have no mtp.* tensors (mtp.fc, mtp.norm, "},
		{dropped, "--mtp=on", "although config.json declares a head (mtp_num_hidden_layers 1): a converter dropped them; foretoken pull ORG/NAME --with-head fetches the original head, and foretoken mtp inject adds one from a file"},
		{dropped, "--draft=mtp", "or use --mtp=off"},
		{dropped, "--mtp=on --mtp-depth=0", "the weights have no mtp.* tensors"},
		{never, "--mtp=on", "no multi-token-prediction head, neither in config.json nor in its tensors"},
	} {
		o := runIn(t, nil, slices.Concat([]string{"generate", "--model", c.dir}, strings.Fields(c.flag), ids)...)
		if o.code != exitError || !strings.Contains(o.err, c.says) {
			t.Errorf("%s: exit code %d, %q, want %q", c.flag, o.code, o.err, c.says)
		}
	}
}

func TestSelfTestSpeaksUp(t *testing.T) {
	broken := rewriteTiny(t, asIs, func(name string, data []byte) bool {
		// The halves of each row belong to the embedding and to the hidden state.
		const rows = 384
		for n := len(data) / rows; strings.HasPrefix(name, "fc.") && len(data) > 0; data = data[n:] {
			for i := range n / 2 {
				data[i], data[n/2+i] = data[n/2+i], data[i]
			}
		}
		return true
	})
	const warning, line = "drafts of the head were accepted, but an intact head has more than half", "mtp: acceptance 0."
	good, err := filepath.Abs(filepath.FromSlash("../../internal/models/tiny"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		args   []string
		warns  bool
		tested bool
	}{
		{"good", []string{"--model", good, "--verbose"}, false, true},
		{"embedded", []string{"--verbose"}, false, false},
		{"permuted", []string{"--model", broken}, true, false},
		{"permuted, with lookup", []string{"--model", broken, "--draft", "auto", "--verbose"}, true, true},
		{"not tested", []string{"--model", broken, "--no-self-test", "--verbose"}, false, false},
		{"head not used", []string{"--model", broken, "--mtp=off", "--verbose"}, false, false},
		{"short context", []string{"--model", broken, "--context", "20", "--verbose"}, false, false},
	} {
		o := runIn(t, nil, slices.Concat([]string{"generate", "--threads", "1", "--max-tokens", "1", "--json"}, ids, c.args)...)
		if o.code != exitOK || strings.Contains(o.err, warning) != c.warns || strings.Contains(o.out, warning) != c.warns {
			t.Errorf("%s: exit code %d, %q, %q", c.name, o.code, o.err, o.out)
		}
		if strings.Contains(o.err, line) != c.tested {
			t.Errorf("%s: %q", c.name, o.err)
		}
	}
}

func TestRunTellsWhatDraftingDid(t *testing.T) {
	// The last of these 22 tokens comes from a plain round, with which drafts are compared.
	o := runIn(t, nil, "run", "--threads", "1", "--temp", "0", "--max-tokens", "22", "--mtp-depth", "2", "--verbose", "Tell me a story.")
	if o.code != exitOK || !strings.Contains(o.err, " rounds (") || !strings.Contains(o.err, " draft tokens (1.00 0.") || !strings.Contains(o.err, " times plain") {
		t.Errorf("--verbose: %+v", o)
	}
	o = runIn(t, nil, "run", "--threads", "1", "--temp", "0", "--max-tokens", "1", "--verbose", "Tell me a story.")
	if !strings.Contains(o.err, "auto: 1 token in 1 round, no draft tokens\n") {
		t.Errorf("one token: %+v", o)
	}
}

func TestGenerateInstructionSetsGiveTheSameBits(t *testing.T) {
	common := with(ids, "--temp", "0", "--max-tokens", "2")
	best := generateJSON(t, common...)
	o := runIn(t, nil, append([]string{"generate", "--json", "--verbose", "--isa", "generic"}, common...)...)
	if !strings.Contains(o.out, best.LogitsHash) || !strings.Contains(o.err, "cpu generic, ") {
		t.Errorf("logits %s, by portable code %+v", best.LogitsHash, o)
	}
}
