package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/golden"
)

func TestInspectSaysWhatAModelIs(t *testing.T) {
	o := runIn(t, nil, "inspect", "tiny", "--context", "100", "--batch", "2")
	for _, want := range []string{"Qwen3.5, dense", "18.95 M", "affine 8 bits in groups of 64", "mtp head    complete", "2 sequences of 100 tokens", "No defects found"} {
		if o.code != exitOK || !strings.Contains(o.out, want) {
			t.Errorf("exit code %d, no %q in\n%s%s", o.code, want, o.out, o.err)
		}
	}
	o = runIn(t, nil, "inspect", filepath.FromSlash("../../internal/models/tiny"), "--json")
	var facts struct {
		Loadable bool
		Model    struct{ Parameters int }
	}
	if err := json.Unmarshal([]byte(o.out), &facts); err != nil || !facts.Loadable || facts.Model.Parameters != 18950320 {
		t.Errorf("%v, %+v", err, facts)
	}
	for args, want := range map[string]string{
		"--gpu-memory 1GB":                 "on gpu layers 0-7, embedding, output, head, vision tower on gpu",
		"--gpu-memory 1GB --mtp off":       "on gpu layers 0-7, embedding, output, vision tower on gpu",
		"--gpu-memory 1GB --gpu-layers 3":  "on gpu layers 5-7, embedding, output, head, vision tower on gpu, ",
		"--gpu-memory 1GB --gpu-layers 0":  "on gpu layers 0-7, embedding, output, head, vision tower on cpu",
		"--gpu-memory 20MB --gpu-layers 3": "on gpu the model does not fit with 3 of its 8 layers on the device",
		"--gpu-memory 1GB --cpu-experts":   "on gpu the model has no experts",
		"--gpu-memory 1GB,1GB":             "on gpu:0,gpu:1 layers 6-7, embedding, output, head, vision tower on gpu:0, ",
	} {
		o := runIn(t, nil, append([]string{"inspect", "tiny"}, strings.Fields(args)...)...)
		if text := strings.Join(strings.Fields(o.out), " "); o.code != exitOK || !strings.Contains(text, want) {
			t.Errorf("%s: exit code %d, no %q in\n%s%s", args, o.code, want, o.out, o.err)
		}
	}
}

// The readable part of a damaged folder is shown, and the exit status reports the damage.
func TestInspectAndDoctorOfDamage(t *testing.T) {
	cut := linkTiny(t, map[string]string{"model-00002-of-00002.safetensors": "not whole"})
	mute := linkTiny(t, map[string]string{"tokenizer.json": ""})
	for _, c := range []struct{ dir, what, remedy string }{
		{cut, "not a safetensors file", "fetch that file again"},
		{mute, "there is no tokenizer.json", "copy tokenizer.json"},
	} {
		for _, command := range []string{"inspect", "doctor"} {
			o := runIn(t, nil, command, c.dir)
			if o.code != exitError || !strings.Contains(o.out, c.what) || !strings.Contains(o.out, c.remedy) ||
				!strings.Contains(o.out, "Qwen3.5") || o.err != "foretoken: the model cannot be loaded\n" {
				t.Errorf("%s: exit code %d\n%s%s", command, o.code, o.out, o.err)
			}
			var facts struct{ Loadable bool }
			o = runIn(t, nil, command, c.dir, "--json")
			if err := json.Unmarshal([]byte(o.out), &facts); err != nil || facts.Loadable || o.code != exitError {
				t.Errorf("%s --json: %v, %+v, %+v", command, err, facts, o)
			}
		}
	}
}

func TestDoctorReports(t *testing.T) {
	page := filepath.Join(t.TempDir(), "report.html")
	o := runIn(t, nil, "doctor", "tiny", "--threads", "1", "--limit", "1ms", "--drafter", golden.TinyDrafter(t).Dir, "--html", page)
	said := strings.Join(strings.Fields(o.out), " ")
	if o.code != exitOK || !strings.Contains(said, "verdict The model and its head are intact") || !strings.Contains(said, "The DSpark drafter is intact") || !strings.Contains(o.out, "####") || strings.Contains(o.out, "█") {
		t.Errorf("exit code %d\n%s%s", o.code, o.out, o.err)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "<svg") || !strings.Contains(string(text), "<h2>Drafter</h2>") {
		t.Errorf("%v, %.80s", err, text)
	}
	none := rewriteTiny(t, asIs, func(string, []byte) bool { return false })
	o = runIn(t, nil, "doctor", none, "--threads", "1", "--limit", "1ms", "--compute", "float32", "--json")
	var r struct {
		Healthy  bool
		Findings []struct{ Remedy string }
	}
	if err := json.Unmarshal([]byte(o.out), &r); err != nil || r.Healthy || o.code != exitError ||
		!strings.Contains(r.Findings[0].Remedy, "foretoken mtp inject --model "+none) || !strings.Contains(o.err, "the model has problems") {
		t.Errorf("%v, %+v, exit code %d, %s", err, r, o.code, o.err)
	}
}

func TestInspectAndDoctorUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"inspect"}, exitUsage, "needs a model"},
		{[]string{"doctor"}, exitUsage, "needs a model"},
		{[]string{"inspect", "tiny", "other"}, exitUsage, `also "other"`},
		{[]string{"inspect", "tiny", "--context", "0"}, exitUsage, "--context"},
		{[]string{"inspect", "tiny", "--gpu-memory", "much"}, exitUsage, "want a size"},
		{[]string{"doctor", "tiny", "--limit", "0s"}, exitUsage, "--limit 0s: want a time above 0"},
		{[]string{"doctor", "tiny", "--limit", "soon"}, exitUsage, "--limit"},
		{[]string{"doctor", "tiny", "--quantize", "7"}, exitUsage, "--quantize"},
		{[]string{"doctor", "tiny", "--html", filepath.Join(t.TempDir(), "no", "folder")}, exitError, "--html"},
		{[]string{"doctor", "tiny", "--drafter", "nowhere"}, exitError, "drafter nowhere: no such folder, and no such drafter in the cache"},
		{[]string{"doctor", "tiny", "--drafter", filepath.Join(t.TempDir(), "nowhere")}, exitError, "want a folder with config.json and *.safetensors files, a GGUF file"},
		{[]string{"doctor", "tiny", "--drafter", "doctor_test.go"}, exitError, "drafter doctor_test.go: checkpoint: doctor_test.go is a file, but not a GGUF file: give a folder"},
		{[]string{"inspect", "tiny", "--drafter", "doctor_test.go"}, exitError, "drafter doctor_test.go: checkpoint: doctor_test.go is a file"},
		{[]string{"inspect", "doctor_test.go"}, exitError, "checkpoint: doctor_test.go is a file, but not a GGUF file: give a folder"},
		{[]string{"doctor", "tiny", "--drafter", "tiny"}, exitError, "drafter tiny: no such folder, and no such drafter in the cache"},
		{[]string{"inspect", filepath.Join(t.TempDir(), "nowhere")}, exitError, "nowhere"},
		{[]string{"doctor", t.TempDir()}, exitError, "config.json"},
	} {
		if o := runIn(t, nil, c.args...); o.code != c.code || !strings.Contains(o.err, c.says) {
			t.Errorf("%q: exit code %d, %q, want %d and %q", c.args, o.code, o.err, c.code, c.says)
		}
	}
}
