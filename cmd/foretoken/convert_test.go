package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// succeed runs a command and demands success.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	o := runIn(t, nil, args...)
	if o.code != exitOK {
		t.Fatalf("%q: exit code %d, %s", args, o.code, o.err)
	}
	return o.out
}

// TestConvertCommand quantizes the embedded model twice, and runs the results.
func TestConvertCommand(t *testing.T) {
	dir := t.TempDir()
	first, again := filepath.Join(dir, "first"), filepath.Join(dir, "again")
	flags := []string{"-q", "--q-bits", "5", "--q-group-size", "32", "--mtp-bits", "6", "--vision-bits", "8", "--q-override", "*.v_proj=8", "--dtype", "bfloat16", "--shard-size", "8MB"}
	out := succeed(t, append([]string{"convert", "--out", first}, flags...)...)
	line := regexp.MustCompile(`^\S+first: 322 tensors of 25\.6 MB became 358 of 1\d\.\d MB, \d\.\d\d bits per weight; the head is 31 tensors of 31; the vision tower is 93 tensors of 57, in \d+\.\d s\n$`)
	if !line.MatchString(out) {
		t.Errorf("summary %q", out)
	}
	succeed(t, append([]string{"convert", "--model", first, "--out", again}, flags...)...)
	entries, err := os.ReadDir(first)
	if err != nil {
		t.Fatal(err)
	}
	shards := 0
	for _, e := range entries {
		a, errA := os.ReadFile(filepath.Join(first, e.Name()))
		b, errB := os.ReadFile(filepath.Join(again, e.Name()))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs: %v, %v", e.Name(), errA, errB)
		}
		if strings.HasSuffix(e.Name(), ".safetensors") {
			shards++
		}
	}
	if shards != 3 {
		t.Errorf("%d files of weights, want 3", shards)
	}
	if o := runIn(t, nil, "run", "--model", first, "--temp", "0", "--image", houseAndHeart, "What do you see?"); o.code != exitOK || strings.TrimSpace(o.out) != saysHouse {
		t.Errorf("asked about an image: %+v", o)
	}
	r := generateJSON(t, with(ids, "--model", first, "--temp", "0", "--max-tokens", "4", "--mtp=on")...)
	if len(r.TokenIDs) != 4 {
		t.Errorf("generated %v", r.TokenIDs)
	}
}

// TestMTPCommands extracts the head of the embedded model and injects it again in each way.
func TestMTPCommands(t *testing.T) {
	dir := t.TempDir()
	bare, file, drafter := filepath.Join(dir, "bare"), filepath.Join(dir, "head.safetensors"), filepath.Join(dir, "head")
	if out := succeed(t, "mtp", "remove", "--model", "tiny", "--out", bare); !strings.Contains(out, "no multi-token-prediction head") {
		t.Errorf("remove: %q", out)
	}
	for _, out := range []string{file, drafter} {
		if got := succeed(t, "mtp", "extract", "--model", "tiny", "--out", out); !strings.Contains(got, "the head is 31 tensors of 31") {
			t.Errorf("extract: %q", got)
		}
	}
	hash := func(model string) string {
		return generateJSON(t, with(ids, "--model", model, "--temp", "0", "--max-tokens", "6", "--mtp=on", "--mtp-depth", "2")...).LogitsHash
	}
	want := hash("tiny")
	for i, head := range []string{file, drafter, "tiny"} {
		whole := filepath.Join(dir, "whole"+string(rune('0'+i)))
		succeed(t, "mtp", "inject", "--model", bare, "--head", head, "--out", whole)
		if got := hash(whole); got != want {
			t.Errorf("with the head of %s: logits %s, want %s", head, got, want)
		}
	}
	succeed(t, "mtp", "inject", "--model", bare, "--head", file)
	if got := hash(bare); got != want {
		t.Errorf("beside: logits %s, want %s", got, want)
	}
	o := runIn(t, nil, "mtp", "inject", "--model", bare, "--head", drafter)
	if o.code != exitError || !strings.Contains(o.err, "has a head already") || !strings.Contains(o.err, "--force") {
		t.Errorf("a second one: exit code %d, %s", o.code, o.err)
	}
	succeed(t, "mtp", "inject", "--model", bare, "--head", drafter, "--force")
}

// TestConvertInterrupted is canceled before it has begun.
func TestConvertInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	root := newRootCommand()
	root.SetArgs([]string{"convert", "--out", filepath.Join(dir, "out"), "-q"})
	var out, stderr bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&stderr)
	if code := execute(ctx, root, &stderr); code != exitInterrupted || out.Len() > 0 || stderr.Len() > 0 {
		t.Errorf("exit code %d, %q, %q", code, &out, &stderr)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestConvertMistakesAreExplained(t *testing.T) {
	there := t.TempDir()
	filetest.Write(t, filepath.Join(there, "letter.txt"), "")
	out := " --out " + filepath.Join(t.TempDir(), "out")
	explained(t, []mistake{
		{"convert", "-", 2, "--out is missing"},
		{"convert x" + out, "-", 2, `takes no argument, but there is "x"`},
		{"convert --q-bits 4" + out, "-", 2, "--q-bits needs --quantize"},
		{"convert -q --q-bits 7" + out, "-", 2, `want 2, 3, 4, 5, 6 or 8`},
		{"convert -q --q-group-size 48" + out, "-", 2, "want 32, 64 or 128"},
		{"convert -q --q-mode mxfp4 --q-bits 4" + out, "-", 2, "--q-mode mxfp4 has fixed bits and group size"},
		{"convert -q --dequantize" + out, "-", 2, "cannot be combined"},
		{"convert --mtp-bits 7" + out, "-", 2, "want 2, 3, 4, 5, 6, 8 or 16"},
		{"convert --dtype int8" + out, "-", 2, "want float16, bfloat16 or float32"},
		{"convert --q-override mtp.*" + out, "-", 2, "want PATTERN=ENCODING"},
		{"convert --q-override mtp.*=9" + out, "-", 2, "want bits"},
		{"convert --q-override mpt.*=8" + out, "-", 1, `override "mpt.*" matches no weight`},
		{"convert --shard-size 5XB" + out, "-", 2, "want a size of at least 1KiB"},
		{"convert --shard-size 12" + out, "-", 2, "want a size of at least 1KiB"},
		{"convert --out " + there, "-", 1, "--force replaces it"},
		{"convert --force --out " + there, "-", 1, "contains something other than a model"},
		{"convert --model " + there + out, "-", 1, "is not a model folder"},
		{"mtp extract --model tiny", "-", 2, "--out is missing"},
		{"mtp remove" + out, "-", 2, "--model is missing"},
		{"mtp inject --model tiny", "-", 2, "--head is missing"},
		{"mtp inject --model tiny --head " + there, "-", 2, "give a new folder with --out"},
		{"mtp inject --model tiny --head " + there + out, "-", 1, "is not a model folder"},
		{"mtp dance", "-", 2, `unknown command "dance"`},
	})
}
