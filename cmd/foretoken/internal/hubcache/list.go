package hubcache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/hub"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// cachedModel is the output of list for a revision in the cache. Fields are only ever added.
type cachedModel struct {
	Model     string   `json:"model"`
	Commit    string   `json:"commit"` // empty: no file has arrived yet
	Refs      []string `json:"refs"`
	Folder    string   `json:"folder"`
	Bytes     int64    `json:"bytes"`
	Family    string   `json:"family"`    // model_type; empty: not known
	Supported bool     `json:"supported"` // it can be run
	Bits      int      `json:"bits"`      // of an element of the coarsest matrices; 0: not known
	Head      bool     `json:"head"`      // it has a multi-token-prediction head
	Vision    bool     `json:"vision"`    // it has a vision tower that can be used
	Drafts    string   `json:"drafts"`    // of a drafter: the models that it fits
	Drafter   string   `json:"drafter"`   // of a model: the drafter of the cache that it is used with
	Problem   string   `json:"problem,omitempty"`

	foreign bool // of an unknown family
}

// List is the command that lists the models of the cache.
func List() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "list [flags]",
		Aliases: []string{"ls"},
		Short:   "List the models in the Hugging Face cache",
		Long: `List shows the models in the Hugging Face cache, including those fetched by other programs: their
type, from their headers, and whether foretoken can run them. It does not use the network.`,
		Example: "  foretoken list\n  foretoken list --json",
		Args:    flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cache, err := load.HubCache()
			if err != nil {
				return err
			}
			list, err := cachedModels(cache)
			if err != nil {
				return err
			}
			c := console.New(cmd)
			if asJSON {
				return console.WriteJSON(c, list)
			}
			if len(list) == 0 {
				c.Remark(fmt.Sprintf("no models in %s; fetch one with foretoken pull ORG/NAME", string(cache)))
			}
			return c.Write(console.Printable(modelTable(list)))
		},
	}
	g := flags.NewGroup("Output")
	g.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	flags.AddGroups(cmd, g)
	return cmd
}

// cachedModels describes all revisions of all models in the cache.
func cachedModels(cache hub.Cache) ([]cachedModel, error) {
	repos, err := cache.Repos()
	if err != nil {
		return nil, err
	}
	list := make([]cachedModel, 0, len(repos))
	for _, repo := range repos {
		m, err := cache.Model(repo)
		if errors.Is(err, hub.ErrNotCached) {
			continue // gone in the meantime
		}
		if err != nil {
			return nil, err
		}
		for i := range m.Snapshots {
			list = append(list, describeSnapshot(&m.Snapshots[i]))
		}
		if len(m.Snapshots) == 0 && m.Size > 0 {
			list = append(list, cachedModel{Model: string(repo), Refs: []string{}, Folder: m.Folder, Bytes: m.Size, Problem: "it has not been downloaded yet"})
		}
	}
	return list, nil
}

// describeSnapshot reads the headers of a model.
func describeSnapshot(s *hub.Snapshot) cachedModel {
	d := cachedModel{Model: string(s.Repo), Commit: s.Commit, Refs: append([]string{}, s.Refs...), Folder: s.Folder, Bytes: s.Size}
	if config, err := os.ReadFile(filepath.Join(s.Folder, "config.json")); err == nil {
		known := false
		if d.Family, known = family(config); !known {
			d.Problem, d.foreign = "not a supported family", true
			return d
		}
	}
	if err := d.look(s); err != nil {
		d.Problem = err.Error()
	}
	d.Supported = d.Problem == ""
	return d
}

// look fills in the data of the headers, and returns their error.
func (d *cachedModel) look(s *hub.Snapshot) (err error) {
	path, err := s.Path()
	if errors.Is(err, hub.ErrNotCached) {
		return fmt.Errorf("incomplete: foretoken pull %s fetches the weights", s.Repo)
	}
	if err != nil {
		return err
	}
	c, err := load.Checkpoint(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	survey, err := model.Survey(c)
	if err != nil {
		return err
	}
	if survey.Drafter != nil {
		d.Drafts = fitText(survey.Drafter)
	} else {
		d.Drafter = load.CachedDrafter(string(s.Repo), path)
	}
	d.Family, d.Head = survey.ModelType, survey.Head.Present && len(survey.Head.Missing) == 0
	d.Vision = survey.Tower.Layers > 0
	for _, p := range survey.Parts {
		if p.Name != "mtp head" && p.Name != "vision" && p.Bits > 0 && (d.Bits == 0 || p.Bits < d.Bits) {
			d.Bits = p.Bits
		}
	}
	switch {
	case len(survey.Missing) > 0:
		return fmt.Errorf("%s missing: foretoken inspect %s", console.Counted(len(survey.Missing), "tensor"), s.Repo)
	case len(survey.Unknown) > 0:
		return fmt.Errorf("%s unknown: foretoken inspect %s", console.Counted(len(survey.Unknown), "tensor"), s.Repo)
	case len(survey.Errors) > 0:
		return survey.Errors[0]
	}
	return nil
}

// modelTable lists the supported models, complete or not, and then the rest.
func modelTable(list []cachedModel) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	var others []string
	rows := 0
	for _, m := range list {
		if m.foreign {
			others = append(others, fmt.Sprintf("%s (%s)", m.Model, dash(m.Family)))
			continue
		}
		if rows++; rows == 1 {
			_, _ = fmt.Fprintln(w, "MODEL\tSIZE\tREVISION\tFAMILY\tBITS\tHEAD\tVISION\tDRAFTER\t")
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Model, console.ByteText(m.Bytes), m.revision(), dash(m.Family), m.bits(), m.has(m.Head), m.has(m.Vision), m.drafter(), strings.ReplaceAll(m.Problem, "\n", " "))
	}
	_ = w.Flush() // a builder does not fail
	if len(others) > 0 {
		if rows > 0 {
			b.WriteString("\n")
		}
		slices.Sort(others)
		fmt.Fprintf(&b, "Not supported: %s\n", strings.Join(slices.Compact(others), ", "))
	}
	return b.String()
}

// revision is the names of a revision.
func (d *cachedModel) revision() string {
	return dash(strings.TrimSpace(strings.Join(d.Refs, ",") + " " + d.Commit[:min(len(d.Commit), 7)]))
}

func (d *cachedModel) bits() string {
	if d.Bits == 0 {
		return dash("")
	}
	return fmt.Sprint(d.Bits)
}

// drafter is what the model drafts with, or the models that a drafter fits.
func (d *cachedModel) drafter() string {
	switch {
	case d.Drafts != "":
		return "for " + d.Drafts
	case d.Drafter != "":
		return d.Drafter
	}
	return d.has(false)
}

// fitText names the models that a drafter fits.
func fitText(d *weights.DrafterSurvey) string {
	if d.Made != "" {
		return d.Made
	}
	text := fmt.Sprintf("hidden size %d", d.TargetHidden)
	if d.TargetLayers > 0 {
		text += fmt.Sprintf(", %d layers", d.TargetLayers)
	}
	return text
}

// has reports whether the model has a part, as far as its headers are known.
func (d *cachedModel) has(part bool) string {
	switch {
	case part:
		return "yes"
	case d.Bits == 0 || d.Drafts != "":
		return dash("")
	}
	return "no"
}

// dash is a text, or a dash if there is none.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
