package bench

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/plot"
)

// playPeer is the variable that has the test's own program behave like a peer's.
const playPeer = "FORETOKEN_TEST_PEER"

func TestMain(m *testing.M) {
	switch os.Getenv(playPeer) {
	case "":
		os.Exit(m.Run())
	case "table":
		data, err := os.ReadFile("testdata/llama-bench.md")
		if err != nil {
			panic(err)
		}
		fmt.Print(string(data))
	case "json":
		args := strings.Join(os.Args[1:], " ")
		if !strings.HasSuffix(args, "-fa 1 -m model.gguf -t 2 -p 512 -n 128 -r 1 -o jsonl -d 0,1000") {
			fmt.Fprintln(os.Stderr, "arguments", args)
			os.Exit(1)
		}
		fmt.Println(`{"build_commit":"abc","n_threads":2,"n_prompt":512,"n_gen":0,"avg_ts":50}`)
		fmt.Println(`{"build_commit":"abc","n_threads":2,"n_prompt":0,"n_gen":128,"avg_ts":10}`)
		fmt.Println(`{"build_commit":"abc","n_threads":2,"n_prompt":512,"n_gen":0,"n_depth":1000,"avg_ts":40}`)
		fmt.Println(`{"build_commit":"abc","n_threads":2,"n_prompt":0,"n_gen":128,"n_depth":1000,"avg_ts":5}`)
	case "prompts":
		if args := strings.Join(os.Args[1:], " "); !strings.Contains(args, "-p 512 -n 0 -r 1") {
			fmt.Fprintln(os.Stderr, "arguments", args)
			os.Exit(1)
		}
		fmt.Println(`{"build_commit":"abc","n_threads":2,"n_prompt":512,"n_gen":0,"avg_ts":50}`)
	case "broken":
		fmt.Fprintln(os.Stderr, "error: no such\x1b[2J model")
		os.Exit(3)
	}
}

func TestParsePeerReadsAllForms(t *testing.T) {
	want := []PeerResult{
		{Prompt: 512, Threads: 2, Rate: 56.71, Build: "b21e4de"},
		{Generate: 128, Threads: 2, Rate: 15.52, Build: "b21e4de"},
		{Generate: 128, Depth: 4096, Threads: 2, Rate: 11.04, Build: "b21e4de"},
	}
	for _, form := range []string{"json", "jsonl", "md"} {
		data := filetest.Read(t, "testdata/llama-bench."+form)
		if got, err := ParsePeer(data); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %+v", form, err, got)
		}
	}
}

func TestParsePeerRefusesNonsense(t *testing.T) {
	for text, says := range map[string]string{
		"":                                       "printed nothing",
		"hello":                                  "no results",
		"[]":                                     "no results",
		"[1]":                                    "JSON",
		"{\"avg_ts\":1}{":                        "JSON lines",
		"[{\"n_gen\":1}]":                        "is not plausible",
		"[{\"n_gen\":1,\"avg_ts\":-1}]":          "is not plausible",
		"[{\"n_gen\":-1,\"avg_ts\":1}]":          "is not plausible",
		"[{\"n_gen\":1,\"avg_ts\":1e999}]":       "JSON",
		"| test | t/s |\n|--|--|\n| pp1 | x |":   "under t/s",
		"| test | t/s |\n|--|--|\n| pp1 | NaN |": "is not plausible",
		"| test | t/s |\n|--|--|\n| zz1 | 1 |":   "want a name such as pp512",
		"| test | t/s |\n|--|--|\n| pp1 | 1 | 2 |": "a row of 3 cells",
		"| model | t/s |\n|--|--|\n| m | 1 |":      "no columns test and t/s",
	} {
		if r, err := ParsePeer([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %+v, error %v, want %q", text, r, err, says)
		}
	}
}

// The seeds are short: of long ones the fuzzer spends its time on making them shorter.
func FuzzParsePeer(f *testing.F) {
	f.Add([]byte(`[{"build_commit":"b","n_threads":2,"n_prompt":512,"n_gen":0,"n_depth":0,"avg_ts":5.5}]`))
	f.Add([]byte("{\"n_gen\":1,\"avg_ts\":1}\n{\"n_gen\":2,\"avg_ts\":2}"))
	f.Add([]byte("| threads | test | t/s |\n| -: | -: | -: |\n| 2 | tg1 @ d4 | 5.5 ± 0.1 |\n\nbuild: b (1)"))
	f.Fuzz(func(t *testing.T, data []byte) {
		results, err := ParsePeer(data)
		if err == nil && len(results) == 0 {
			t.Error("nothing, and no error")
		}
		for _, r := range results {
			if err == nil && (!(r.Rate > 0) || r.Prompt < 0 || r.Generate < 0) {
				t.Errorf("%+v", r)
			}
		}
	})
}

// metronome is an engine whose rounds take the same time, and of a prompt at most 400 tokens.
func metronome(round time.Duration) Runner {
	return func(_ context.Context, batch []engine.Request) (*Run, error) {
		var rounds []engine.Round
		for left := len(batch[0].Prompt); left > 0; left -= 400 {
			rounds = append(rounds, engine.Round{Took: round, Sequences: 1, Prompt: min(left, 400)})
		}
		rounds[len(rounds)-1].Tokens = 1
		for range batch[0].MaxTokens - 1 {
			rounds = append(rounds, engine.Round{Took: round, Sequences: 1, Tokens: 1})
		}
		return &Run{Answers: make([]Answer, 1), Rounds: rounds}, nil
	}
}

func compared(t *testing.T, play string, depths ...int) (*CompareReport, error) {
	t.Helper()
	t.Setenv(playPeer, play)
	return Compare(t.Context(), Peer{os.Args[0], "-fa", "1"}, metronome(50*time.Millisecond), CompareOptions{
		File: "model.gguf", Threads: 2, Prompts: []int{512}, Generates: []int{128}, Depths: depths, Repeats: 2, Vocab: 100,
	})
}

func TestCompareMeasuresPromptsAlone(t *testing.T) {
	t.Setenv(playPeer, "prompts")
	for _, none := range [][]int{nil, {0}} {
		r, err := Compare(t.Context(), Peer{os.Args[0]}, metronome(50*time.Millisecond), CompareOptions{
			File: "model.gguf", Threads: 2, Prompts: []int{512}, Generates: none, Repeats: 1, Vocab: 100,
		})
		if err != nil || len(r.Tests) != 1 || r.Tests[0].Name != "pp512" {
			t.Errorf("generating %v: %v, %+v", none, err, r)
		}
	}
}

func TestCompareTakesTurns(t *testing.T) {
	r, err := compared(t, "json", 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	// 512 tokens in two rounds of 50 ms, and a token in each: 5,120 and 20 per second.
	if pp := r.Tests[0]; pp.Name != "pp512" || !near(pp.Ours.Median, 5120) || !near(pp.Peer.Median, 50) || !near(pp.Ratio.Median, 102.4) || pp.Noisy || len(pp.PeerRates) != 2 {
		t.Errorf("%+v", pp)
	}
	if tg := r.Tests[1]; tg.Name != "tg128" || !near(tg.Ratio.Median, 2) || r.Build != "abc" {
		t.Errorf("%+v", tg)
	}
	// The last 512 of 1,512 tokens are a round of 312 and half of one of 400.
	if pp := r.Tests[2]; pp.Name != "pp512 @ d1000" || !near(pp.Ours.Median, 512/0.075) || !near(pp.Peer.Median, 40) {
		t.Errorf("%+v", pp)
	}
	if tg := r.Tests[3]; tg.Name != "tg128 @ d1000" || !near(tg.Ratio.Median, 4) {
		t.Errorf("%+v", tg)
	}
	if runtime.GOOS == "linux" && (r.OurMemory < 1<<20 || r.PeerMemory < 1<<20 || r.OurMemory > 1<<36 || r.PeerMemory > 1<<36) {
		t.Errorf("resident memory %d and %d bytes", r.OurMemory, r.PeerMemory)
	}
	if text := r.Text(plot.Style{ASCII: true}); !strings.Contains(text, "2.00 (2.00 to 2.00)") || !strings.Contains(text, "build abc") {
		t.Errorf("text\n%s", text)
	}
	for peer, want := range map[int64]string{1e9: "the peer's at most 1.00 GB", 3e9: "the peer's 3.00 GB"} {
		if r.OurMemory, r.PeerMemory = 2e9, peer; !strings.Contains(r.head(), want) {
			t.Errorf("no %q in %s", want, r.head())
		}
	}
	if r, err = compared(t, "table"); err != nil || !near(r.Tests[1].Peer.Median, 15.52) {
		t.Errorf("%v, %+v", err, r)
	}
}

// TestCompareComputesContextsOnce looks at what the engine is asked for: each context alone, once, and then, behind it, prompts
// that the prefix cache cannot know.
func TestCompareComputesContextsOnce(t *testing.T) {
	t.Setenv(playPeer, "json")
	var contexts []int
	known := map[string]bool{} // every prompt up to its first token behind the context
	beat := metronome(50 * time.Millisecond)
	run := func(ctx context.Context, batch []engine.Request) (*Run, error) {
		ids := batch[0].Prompt
		switch depth := len(ids) / 1000 * 1000; {
		case len(ids) == depth:
			contexts = append(contexts, depth)
		case known[fmt.Sprint(ids[:depth+1])]:
			t.Errorf("%d tokens that the cache knows", len(ids))
		case depth > 0 && !slices.Equal(ids[:depth], prompt(depth, 0, 1000, 0)):
			t.Errorf("%d tokens with another context", len(ids))
		default:
			known[fmt.Sprint(ids[:depth+1])] = true
		}
		return beat(ctx, batch)
	}
	_, err := Compare(t.Context(), Peer{os.Args[0], "-fa", "1"}, run, CompareOptions{
		File: "model.gguf", Threads: 2, Prompts: []int{512}, Generates: []int{128}, Depths: []int{0, 1000}, Repeats: 3, Vocab: 1000,
	})
	if err != nil || !slices.Equal(contexts, []int{1000}) || len(known) != 1+3*4 {
		t.Errorf("%v: contexts of %d tokens computed, %d prompts", err, contexts, len(known))
	}
}

func TestCompareTellsWhatThePeerSays(t *testing.T) {
	if _, err := compared(t, "broken"); err == nil || !strings.Contains(err.Error(), "exit status 3: error: no such[2J model") {
		t.Errorf("error %v", err)
	}
}
