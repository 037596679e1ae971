package load

import (
	"strings"
	"testing"

	"github.com/foretoken/foretoken"
)

// TestDrafterFlags has combinations of flags with a drafter.
func TestDrafterFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--drafter x":                "",
		"--drafter x --mtp=off":      "",
		"--drafter x --draft auto":   "",
		"--drafter x --draft block":  "alone",
		"--draft block":              "--draft block needs --drafter",
		"--drafter x --draft mtp":    "--drafter and --draft mtp cannot be combined",
		"--drafter x --draft ngram":  "--drafter and --draft ngram cannot be combined",
		"--drafter x --mtp=on":       "--drafter and --mtp=on cannot be combined",
		"--mtp=off --draft auto":     "--draft auto needs the head",
		"--drafter x --mtp-depth 0":  "off",
		"--mtp=off --drafter x.gguf": "",
	} {
		f := newDraftFlags()
		if err := f.Group().Flags().Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		err := f.Validate()
		if err != nil || strings.HasPrefix(want, "--") {
			if err == nil || !strings.Contains(err.Error(), want) || want == "" {
				t.Errorf("%s: %v, want %q", args, err, want)
			}
			continue
		}
		o := f.options()
		if o.Drafter == "" || o.NoLookup != (want == "alone") || (o.Depth == foretoken.DepthOff) != (want == "off") {
			t.Errorf("%s: %+v", args, o)
		}
	}
}
