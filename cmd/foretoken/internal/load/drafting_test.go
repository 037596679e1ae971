package load

import (
	"strings"
	"testing"

	"github.com/foretoken/foretoken"
)

// TestDrafterFlags has combinations of flags with a drafter.
func TestDrafterFlags(t *testing.T) {
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	for args, want := range map[string]string{
		"--drafter .":                        "head, drafter, copies",
		"--drafter . --mtp=off":              "drafter, copies",
		"--drafter . --draft auto":           "head, drafter, copies",
		"--drafter . --draft auto --mtp=on":  "head required, drafter, copies",
		"--drafter . --draft block":          "drafter",
		"--drafter . --draft mtp":            "head required",
		"--drafter . --draft ngram":          "copies",
		"--drafter . --mtp=on":               "head required, drafter, copies",
		"--drafter . --mtp-depth 0":          "off",
		"--drafter off":                      "head, copies",
		"--draft ngram":                      "copies",
		"--draft mtp":                        "head required",
		"--mtp=off":                          "off",
		"--draft block":                      "--draft block needs a drafter, but there is none beside tiny",
		"--draft block --drafter off":        "--draft block and --drafter off cannot be combined",
		"--drafter Org/None":                 "drafter Org/None: no such folder, and no such drafter in the cache: foretoken pull Org/None fetches it",
		"--drafter /none/of":                 "drafter /none/of: no such folder; want a folder with config.json and *.safetensors files, a GGUF file or ORG/NAME",
		"--drafter . --draft block --mtp=on": "--draft block and --mtp=on cannot be combined",
		"--draft ngram --mtp=on":             "--draft ngram and --mtp=on cannot be combined",
		"--mtp=off --draft auto":             "--draft auto needs the head",
		"--mtp=off --draft mtp --drafter .":  "--draft mtp needs the head",
	} {
		f := newDraftFlags()
		if err := f.Group("").Flags().Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		err := f.Validate()
		o := f.options()
		if err == nil {
			err = f.Settle(&o, Embedded, Embedded, f.File())
		}
		if err != nil || strings.HasPrefix(want, "--") || strings.HasPrefix(want, "drafter ") {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", args, err, want)
			}
			continue
		}
		var list []string
		for _, x := range []struct {
			name string
			is   bool
		}{
			{"head", o.Head == foretoken.HeadAuto}, {"head required", o.Head == foretoken.HeadRequired}, {"drafter", o.Drafter != foretoken.DrafterOff}, {"copies", !o.NoLookup},
		} {
			if x.is {
				list = append(list, x.name)
			}
		}
		if got := strings.Join(list, ", "); got != want && (o.Depth != foretoken.DepthOff || want != "off") {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}

func TestMeasuredSpeedupIsInTheLine(t *testing.T) {
	r := foretoken.SpeculationStats{Drafter: "auto", Rounds: 4, Drafted: 2, Accepted: 1, DraftedAt: [foretoken.MaxDepth]int{2}, AcceptedAt: [foretoken.MaxDepth]int{1}}
	const want = "auto: 5 tokens in 4 rounds (1.25 per round), accepted 1 of 2 draft tokens (0.50), depth 0.5"
	if line := DescribeSpeculation(&r); line != want {
		t.Errorf("%q, want %q", line, want)
	}
	r.Speedup = 1.2
	if line := DescribeSpeculation(&r); line != want+", about 1.20 times plain" {
		t.Errorf("%q, want %q and the speedup", line, want)
	}
}
