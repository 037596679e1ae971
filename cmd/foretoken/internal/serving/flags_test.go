package serving

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/filetest"
)

func TestServeCanBeStrict(t *testing.T) {
	t.Setenv(flags.KeyVariable, "")
	for _, strict := range []string{"false", "true"} {
		f := newServeFlags()
		g := f.networkGroup()
		if err := g.Flags().Set("strict-fields", strict); err != nil {
			t.Fatal(err)
		}
		if o, err := f.options(t.Context(), slog.New(slog.DiscardHandler)); err != nil || o.StrictFields != (strict == "true") {
			t.Errorf("--strict-fields=%s: %v, %v", strict, o.StrictFields, err)
		}
	}
}

func TestServeKnowsPictures(t *testing.T) {
	t.Setenv(flags.KeyVariable, "")
	f := newServeFlags()
	for _, x := range []struct {
		group       flags.Group
		name, value string
	}{
		{f.networkGroup(), "allow-image-urls", "*.example.com"}, {f.networkGroup(), "allow-image-urls", "10.0.0.1:80"}, {f.modelGroup(), "max-image-pixels", "5000"},
	} {
		if err := x.group.Flags().Set(x.name, x.value); err != nil {
			t.Fatal(err)
		}
	}
	o, err := f.options(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil || strings.Join(o.ImageHosts, " ") != "*.example.com 10.0.0.1:80" || o.Models[0].Options.Vision.MaxPixels != 5000 {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestServeReadsKeys(t *testing.T) {
	file := filetest.Write(t, filepath.Join(t.TempDir(), "keys"), "# ours\none\n\n  two \n")
	for _, x := range []struct{ flag, variable string }{{"one", ""}, {"@" + file, ""}, {"", "two"}, {"", "@" + file}} {
		t.Setenv(flags.KeyVariable, x.variable)
		f := newServeFlags()
		f.apiKey = x.flag
		if keys, err := f.keys(); keys == nil || err != nil {
			t.Errorf("%+v: %v, %v", x, keys, err)
		}
	}
	t.Setenv(flags.KeyVariable, "")
	if keys, err := newServeFlags().keys(); keys != nil || err != nil {
		t.Errorf("without keys: %v, %v", keys, err)
	}
}
