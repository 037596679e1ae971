package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/sample"
)

// mistake is a command line and its expected exit code and message.
type mistake struct {
	args  string // separated by spaces
	stdin string // - for none
	code  int
	says  string
}

// Each mistake has its exit code, and an error that names the thing and the remedy.
func TestMistakesAreExplained(t *testing.T) {
	dir := t.TempDir()
	broken := filetest.Write(t, filepath.Join(dir, "broken.json"), `[{"content": "Hi."}]`)
	explained(t, []mistake{
		{"dance", "-", 2, `unknown command "dance"; the commands are`},
		{"genrate", "-", 2, `unknown command "genrate"; did you mean generate?`},
		{"version now", "-", 2, `foretoken version takes no argument, but there is "now"`},
		{"generate story", "-", 2, `takes no argument, but there is "story"`},
		{"generate --tmp 1", "-", 2, "unknown flag: --tmp"},
		{"generate --prompt", "-", 2, "flag needs an argument: --prompt"},
		{"generate --temp hot", "-", 2, `"--temp" flag: want a number from 0 to 100`},
		{"generate --temp -1", "-", 2, `"--temp" flag: want a number from 0 to 100`},
		{"generate --temperature NaN", "-", 2, `"--temperature" flag: want a number from 0 to 100`},
		{"generate --temp Inf", "-", 2, `"--temp" flag: want a number from 0 to 100`},
		{"generate --top-p 1.5", "-", 2, `"--top-p" flag: want a number from 0 to 1`},
		{"generate --min-p x", "-", 2, `"--min-p" flag: want a number from 0 to 1`},
		{"generate --top-k 0.5", "-", 2, `"--top-k" flag: want a whole number, 0 or more`},
		{"generate --xtc-probability 2", "-", 2, "want a number from 0 to 1"},
		{"generate --xtc-threshold 0.6", "-", 2, "want a number from 0 to 0.5"},
		{"generate --repetition-penalty -1", "-", 2, "want a number from 0.01 to 100"},
		{"generate --repetition-context-size -1", "-", 2, "want a whole number, 0 or more"},
		{"generate --presence-penalty Inf", "-", 2, "want a number from -100 to 100"},
		{"generate --frequency-penalty x", "-", 2, "want a number from -100 to 100"},
		{"generate --logit-bias 5", "-", 2, "such as 42=-5"},
		{"generate --logit-bias -5=1", "-", 2, "such as 42=-5"},
		{"generate --logit-bias 5=NaN", "-", 2, "such as 42=-5"},
		{"generate --seed -1", "-", 2, "want a whole number from 0 to 18446744073709551615"},
		{"generate --max-tokens -1", "-", 2, "want a whole number, 0 or more"},
		{"generate --stop=", "-", 2, `"--stop" flag: want a text that is not empty`},
		{"generate --threads 0", "-", 2, "want a whole number from 1 to 1024"},
		{"generate --quantize 7", "-", 2, `"--quantize" flag: want 4, 5, 6 or 8`},
		{"generate --compute int4", "-", 2, `"--compute" flag: want int8 or float32`},
		{"generate --context 1", "-", 2, "want a whole number, 2 or more"},
		{"generate --chat-template-args [1]", "-", 2, "want a JSON object"},
		{"generate --chat-template-config {", "-", 2, "want a JSON object"},
		{"generate --logprobs 1001 --json", "-", 2, "want a whole number from 0 to 1000"},
		{"generate --logprobs 1 --prompt x", "-", 2, "--logprobs needs --json"},
		{"generate", "-", 2, "there is no prompt: give --prompt"},
		{"generate", "", 2, "standard input: the prompt is empty"},
		{"generate --prompt x --prompt-ids 1", "-", 2, "--prompt and --prompt-ids cannot be combined"},
		{"generate --messages x --prompt y", "-", 2, "--prompt and --messages cannot be combined"},
		{"generate --prompt-ids 1,x", "-", 2, `--prompt-ids: "x" is not a token id`},
		{"generate --prompt-ids ,", "-", 2, "--prompt-ids: there are no ids"},
		{"generate --prompt-ids 1 --system x", "-", 2, "--system and --prompt-ids cannot be combined"},
		{"generate --prompt x --no-chat-template --no-thinking", "-", 2, "--no-thinking and --no-chat-template cannot be combined"},
		{"generate --prompt x --enable-thinking=maybe", "-", 2, "want true or false"},
		{"generate --prompt x --enable-thinking --no-thinking", "-", 2, "cannot be combined"},
		{"generate --messages x --no-chat-template", "-", 2, "--messages and --no-chat-template cannot be combined"},
		{"generate --messages " + filepath.Join(dir, "none.json"), "-", 1, "none.json: no such file"},
		{"generate --messages " + dir, "-", 1, "is a directory"},
		{"generate --messages " + broken, "-", 1, "'role' is missing"},
		{"generate --messages -", "{", 1, "--messages -: "},
		{"generate --messages -", "{}", 1, "there are no messages"},
		{"generate --messages - --system b", `[{"role":"system","content":"a"}]`, 2, "already begin with a system message"},
		{"generate --messages -", `{"messages":[{"role":"user","content":"a"}],"tools":5}`, 1, "chat: tools: expected a JSON array"},
		{"generate --model " + filepath.Join(dir, "none") + " --prompt x", "-", 1, "none: no such folder; want a folder with config.json"},
		{"generate --model " + dir + " --prompt x", "-", 1, "is not a model folder"},
		{"generate --mtp maybe", "-", 2, `"--mtp" flag: want auto, on or off`},
		{"generate --mtp-depth 9", "-", 2, `"--mtp-depth" flag: want a whole number from 0 to 8, or auto`},
		{"generate --mtp-depth -1", "-", 2, "want a whole number from 0 to 8, or auto"},
		{"generate --mtp-accept always", "-", 2, `"--mtp-accept" flag: want exact or ratio`},
		{"generate --draft none", "-", 2, `"--draft" flag: want auto, mtp, block or ngram`},
		{"generate --draft-vocab 0", "-", 2, `"--draft-vocab" flag: want a whole number, 1 or more, or all or auto`},
		{"generate --prompt x --mtp=off --draft mtp", "-", 2, "--mtp=off and --draft mtp cannot be combined: --draft mtp needs the head"},
		{"generate --prompt x --mtp=off --draft auto", "-", 2, "use --draft ngram"},
		{"generate --prompt x --mtp=on --draft ngram", "-", 2, "--draft ngram and --mtp=on cannot be combined: use --draft auto for both"},
		{"run --mtp=off --draft mtp x", "-", 2, "--mtp=off and --draft mtp cannot be combined"},
		{"generate --gpu-layers some", "-", 2, `"--gpu-layers" flag: want auto or a whole number, 0 or more`},
		{"generate --gpu-layers -1", "-", 2, "want auto or a whole number, 0 or more"},
		{"generate --device cpu --gpu-layers 3 --prompt x", "-", 1, "no other device is available for a part of the model"},
		{"doctor tiny --device cpu --cpu-experts", "-", 1, "no other device is available for a part of the model"},
		{"generate --isa abacus", "-", 2, `"--isa" flag: want `},
		{"run", "-", 2, "there is no prompt: give one as an argument"},
		{"bench model --blocks 33", "-", 2, "--blocks 33: want numbers from 2 to 32"},
		{"run", "", 2, "standard input: the prompt is empty"},
		{"run --no-chat-template --system x y", "-", 2, "--system and --no-chat-template cannot be combined"},
		{"run --seed x", "-", 2, "want a whole number"},
	})
}

// These show only when the model is known.
func TestMistakesAboutTheModelAreExplained(t *testing.T) {
	if testing.Short() {
		t.Skip("opens the model many times")
	}
	long := "--prompt-ids=" + strings.Repeat("5,", 5000) + "5"
	explained(t, []mistake{
		{"generate --prompt-ids 8256", "-", 2, "8256 is not a token of the model; its ids are 0 to 8255"},
		{"generate --prompt-ids 5 --logit-bias 8196=1", "-", 2, "--logit-bias: 8196 is not a token of the model"},
		{"generate --prompt-ids 5 --context 5000", "-", 2, "--context 5000: the model supports at most 4096 tokens"},
		{"generate --prompt-ids 5,5,5 --context 3", "-", 1, "3 tokens, which does not fit into the context of 3: shorten the prompt, or raise --context (the model allows 4096)"},
		{"generate " + long, "-", 1, "5001 tokens, but the model allows 4096"},
		{"generate --prompt= --no-chat-template", "-", 2, "the prompt is empty"},
		{"generate --prompt-ids 5 --xtc-probability 1 --xtc-threshold 0", "-", 2, "--xtc-threshold 0: want a number above 0"},
		{"generate --prompt x --chat-template-args {\"messages\":1}", "-", 1, `template variable "messages": the name is reserved`},
	})
}

func explained(t *testing.T, mistakes []mistake) {
	t.Helper()
	for _, c := range mistakes {
		var stdin io.Reader
		if c.stdin != "-" {
			stdin = strings.NewReader(c.stdin)
		}
		o := runIn(t, stdin, strings.Fields(c.args)...)
		name := c.args[:min(len(c.args), 80)]
		if o.code != c.code || !strings.Contains(o.err, c.says) {
			t.Errorf("foretoken %s: exit code %d, %q; want %d, %q", name, o.code, o.err, c.code, c.says)
		}
		if o.out != "" || !strings.HasPrefix(o.err, "foretoken: ") || strings.Contains(o.err, "\nforetoken: ") {
			t.Errorf("foretoken %s: prints %q and %q", name, o.out, o.err)
		}
		if c.code == exitUsage != strings.Contains(o.err, "--help'.\n") {
			t.Errorf("foretoken %s: points to help: %q", name, o.err)
		}
	}
}

func TestHelpShowsEveryFlagOnce(t *testing.T) {
	for _, name := range []string{"generate", "run"} {
		o := runIn(t, nil, name, "--help")
		if o.code != 0 || o.err != "" {
			t.Fatalf("%s --help: %+v", name, o)
		}
		for _, flag := range []string{
			"--model", "--system", "--no-chat-template", "--max-tokens", "--temp", "--top-p", "--top-k", "--min-p",
			"--xtc-probability", "--xtc-threshold", "--repetition-penalty", "--repetition-context-size",
			"--presence-penalty", "--frequency-penalty", "--logit-bias", "--seed", "--stop", "--ignore-eos",
			"--threads", "--quantize", "--compute", "--kv-bits", "--context", "--enable-thinking", "--no-thinking",
			"--isa", "--mtp", "--mtp-depth", "--mtp-accept", "--draft", "--draft-vocab",
			"--image", "--video", "--fps", "--no-vision", "--mmproj", "--max-image-pixels", "--image-as-stored", "--image-on-white",
		} {
			if n := strings.Count(o.out, "\n      "+flag+" "); n != 1 {
				t.Errorf("%s --help shows %s %d times", name, flag, n)
			}
		}
	}
}

func TestVersionNamesThePlatform(t *testing.T) {
	command, flag := runIn(t, nil, "version"), runIn(t, nil, "--version")
	if command.code != 0 || command != flag || !strings.HasPrefix(command.out, "foretoken ") || !strings.Contains(command.out, "go1.") {
		t.Errorf("version: %+v, --version: %+v", command, flag)
	}
}

func TestCompletionKnowsTheChoices(t *testing.T) {
	o := runIn(t, nil, "__complete", "generate", "--compute", "")
	if !strings.Contains(o.out, "int8\nfloat32\n") {
		t.Errorf("completion of --compute: %q", o.out)
	}
	if o = runIn(t, nil, "__complete", "run", "--draft", ""); !strings.Contains(o.out, "auto\nmtp\nblock\nngram\n") {
		t.Errorf("completion of --draft: %q", o.out)
	}
}

// Every command that keeps a KV cache takes its width.
func TestKVBitsIsAFlagOfEveryCommandThatDecodes(t *testing.T) {
	for _, command := range []string{"generate", "run", "serve", "bench decode", "bench model", "bench compare"} {
		words := strings.Fields(command)
		o := runIn(t, nil, append(words, "--kv-bits", "5")...)
		if o.code != exitUsage || !strings.Contains(o.err, `"--kv-bits" flag: want 4, 8, 16 or 32`) {
			t.Errorf("%s --kv-bits 5: %+v", command, o)
		}
		o = runIn(t, nil, append(append([]string{"__complete"}, words...), "--kv-bits", "")...)
		if !strings.HasPrefix(o.out, "4\n8\n16\n32\n") {
			t.Errorf("%s: completion of --kv-bits: %q", command, o.out)
		}
	}
	hash := func(flags ...string) string {
		out := generate(t, with(with(ids, "--temp", "0", "--max-tokens", "2", "--json"), flags...)...)
		_, text, _ := strings.Cut(out, `"logits_hash":"0x`)
		text, _, found := strings.Cut(text, `"`)
		if !found {
			t.Fatalf("no hash in %s", out)
		}
		return text
	}
	usual, coded, packed := hash(), hash("--kv-bits", "8"), hash("--kv-bits", "4")
	if usual != hash("--kv-bits", "16") || usual == coded || usual == packed || coded == packed {
		t.Error("16 bits are the default, and 8 and 4 bits give other logits")
	}
}

func TestDrawnSeedsAreExactInJSON(t *testing.T) {
	seen := map[uint64]bool{}
	for range 100 {
		seed := sample.NewSeed()
		if seed >= 1<<53 || seen[seed] {
			t.Errorf("seed %d is too large or was drawn twice", seed)
		}
		seen[seed] = true
	}
}
