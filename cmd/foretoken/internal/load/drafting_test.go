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
		"--drafter .":                 "",
		"--drafter . --mtp=off":       "",
		"--drafter . --draft auto":    "",
		"--drafter . --draft block":   "alone",
		"--draft block":               "--draft block needs a drafter, but there is none beside tiny",
		"--draft block --drafter off": "--draft block and --drafter off cannot be combined",
		"--draft block --mtp=on":      "--drafter and --mtp=on cannot be combined",
		"--drafter off":               "none",
		"--draft ngram":               "none",
		"--mtp=on":                    "none",
		"--drafter Org/None":          "drafter Org/None: no such folder, and no such drafter in the cache: foretoken pull Org/None fetches it",
		"--drafter /none/of":          "drafter /none/of: no such folder; want a folder with config.json and *.safetensors files, a GGUF file or ORG/NAME",
		"--drafter . --draft mtp":     "--drafter and --draft mtp cannot be combined",
		"--drafter . --draft ngram":   "--drafter and --draft ngram cannot be combined",
		"--drafter . --mtp=on":        "--drafter and --mtp=on cannot be combined",
		"--mtp=off --draft auto":      "--draft auto needs the head",
		"--drafter . --mtp-depth 0":   "off",
		"--mtp=off --drafter .":       "",
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
		if err != nil || strings.Contains(want, " ") {
			if err == nil || !strings.Contains(err.Error(), want) || want == "" {
				t.Errorf("%s: %v, want %q", args, err, want)
			}
			continue
		}
		if none := want == "none" || want == "off"; none != (o.Drafter == foretoken.DrafterOff) || o.Drafter == "" {
			t.Errorf("%s: drafter %q", args, o.Drafter)
		}
		if o.NoLookup != (want == "alone") || (o.Depth == foretoken.DepthOff) != (want == "off") {
			t.Errorf("%s: %+v", args, o)
		}
	}
}
