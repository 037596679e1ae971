// Package hubcache has the commands on the cache of models from the Hugging Face hub: pull, list and rm.
package hubcache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/hub"
	"github.com/foretoken/foretoken/internal/model"
)

// pulling is a run of the command pull.
type pulling struct {
	revision         string
	include, exclude flags.Texts
	parallel         flags.Setting[int]
	withHead         flags.Setting[string]
	force            bool
}

// Pull is the command that downloads a model.
func Pull() *cobra.Command {
	p := &pulling{parallel: flags.Whole(1, 64), withHead: headSetting()}
	cmd := &cobra.Command{
		Use:   "pull [flags] ORG/NAME[@REVISION]",
		Short: "Fetch a model from the Hugging Face hub",
		Long: `Pull fetches a model from the Hugging Face hub into the shared Hugging Face cache and prints its
folder. Every --model then accepts ORG/NAME. Cached files are not fetched again, and interrupted
downloads resume. Every file is checked against the hash that the hub announces.

By default it fetches the smallest set of files that works: the configuration, tokenizer, chat
template and the *.safetensors weights that the index names, or the only *.gguf file, or the only
folder with a model. Of several models it lists names and sizes, and --include chooses. A pattern
with a slash is matched against the whole path of a file, a pattern without one against each path
element.

A drafter (DFlash, DFlash2, DSpark, EAGLE-3, Gemma 4 assistant) is fetched like a model; pull says which models it is for.

Many converters drop the multi-token-prediction head. --with-head fetches its tensors, and nothing
else, from the original repository and stores them beside the model as mtp.safetensors.

Environment:
  HF_TOKEN        token for private and gated models (or the file that hf auth login writes)
  HF_ENDPOINT     URL of the hub (default ` + hub.DefaultEndpoint + `)
  HF_HUB_CACHE    cache folder (default $HF_HOME/hub, or ~/.cache/huggingface/hub)
  HF_HUB_OFFLINE  1: do not use the network
  HTTPS_PROXY     proxy for the hub`,
		Example: `  foretoken pull Qwen/Qwen3.5-4B
  foretoken pull Qwen/Qwen3.5-4B@refs/pr/1
  foretoken pull unsloth/Qwen3.5-4B-GGUF --include '*Q4_K_M*' --include 'mmproj-F16*'
  foretoken pull z-lab/Qwen3.5-4B-DFlash
  foretoken pull mlx-community/Qwen3.5-4B-4bit --with-head
  foretoken pull z-lab/Qwen3.5-4B-PARO --with-head=Qwen/Qwen3.5-4B@main
  foretoken run --model "$(foretoken pull Qwen/Qwen3.5-4B)"`,
		Args:              oneRepository,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.run(cmd, args[0]) },
	}
	what := flags.NewGroup("Selection")
	fs := what.Flags()
	fs.SortFlags = false
	fs.StringVar(&p.revision, "revision", "", "`REVISION`: branch, tag or commit (default main)")
	fs.Var(&p.include, "include", "`GLOB` of files to fetch instead of the default files, such as '*Q4_K_M*'; may be repeated")
	fs.Var(&p.exclude, "exclude", "`GLOB` of files not to fetch; may be repeated")
	fs.Var(&p.withHead, "with-head", "fetch a missing multi-token-prediction head from REPO, an ORG/NAME[@REVISION], or from the base_model of the model card")
	fs.Lookup("with-head").NoOptDefVal = byCard
	fs.BoolVar(&p.force, "force", false, "also fetch models that foretoken cannot run")
	how := flags.NewGroup("Options")
	how.Flags().Var(&p.parallel, "parallel", "parallel connections (default 8)")
	flags.AddGroups(cmd, what, how)
	return cmd
}

// oneRepository demands the name of a repository and nothing else.
func oneRepository(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return flags.Usagef("%s needs a model, such as Qwen/Qwen3.5-4B", cmd.CommandPath())
	case len(args) > 1:
		return flags.Usagef("%s takes one model, but there is also %q", cmd.CommandPath(), args[1])
	case args[0] == load.Embedded:
		return flags.Usagef("%s is embedded in the program: it can be neither fetched nor removed", load.Embedded)
	}
	return nil
}

func (p *pulling) run(cmd *cobra.Command, name string) error {
	if p.revision != "" {
		if strings.Contains(name, "@") {
			return flags.Usagef("%s and --revision both give a revision: leave one out", name)
		}
		name += "@" + p.revision
	}
	repo, revision, err := hub.ParseName(name)
	if err != nil {
		return flags.Usage(err)
	}
	client, err := load.NewHubClient(p.parallel.Or(0))
	if err != nil {
		return err
	}
	c := console.New(cmd)
	ctx, stop := console.Interruptible(cmd.Context())
	defer stop()
	folder, err := p.fetch(ctx, c, client, repo, revision)
	if errors.Is(err, hub.ErrOffline) {
		if cached, failed := load.Resolve(name); failed == nil {
			c.Remark("HF_HUB_OFFLINE is set: using the cached files")
			return c.Write(cached + "\n")
		}
	}
	switch {
	case ctx.Err() != nil:
		c.Remark("interrupted; run the same command to resume")
		return console.ErrInterrupted
	case err != nil:
		return advise(err, name)
	}
	return c.Write(folder + "\n")
}

// fetch brings the model into the cache, and returns its folder there.
func (p *pulling) fetch(ctx context.Context, c *console.Console, client *hub.Client, repo hub.Repo, revision string) (string, error) {
	l, err := client.List(ctx, repo, revision)
	if err != nil {
		return "", err
	}
	files, err := l.Choose(p.include, p.exclude)
	if errors.Is(err, path.ErrBadPattern) {
		return "", flags.Usage(err)
	}
	if err != nil {
		return "", err
	}
	if len(p.include) == 0 {
		if files, err = indexed(ctx, client, l, files); err != nil {
			return "", err
		}
	}
	if !p.force {
		if err := runnableModel(ctx, client, l, files); err != nil {
			return "", err
		}
	}
	head := &lostHead{c: c, client: client, l: l}
	if p.withHead.Given {
		if !isFolder(files) {
			return "", fmt.Errorf("--with-head: %s has no safetensors files, and heads are added to those only", l.Repo)
		}
		if err := head.find(ctx, p.withHead.Value); err != nil {
			return "", err
		}
	}
	show := newPullShow(c, l, files)
	folder, err := client.Fetch(ctx, l, files, show.event)
	show.end()
	if err != nil {
		return folder, err
	}
	p.tellDrafter(ctx, head)
	if !isFolder(files) {
		return folder, nil
	}
	head.inside = modelFolder(files)
	folder = filepath.Join(folder, filepath.FromSlash(head.inside))
	return folder, head.complete(ctx, folder)
}

// tellDrafter says which models a drafter that was fetched is for: by its card, or by its sizes.
func (p *pulling) tellDrafter(ctx context.Context, h *lostHead) {
	k, err := load.Checkpoint(string(h.l.Repo) + "@" + h.l.Commit)
	if err != nil {
		return // using it reports the error
	}
	defer k.Close() //nolint:errcheck // it was only read
	s, err := model.Survey(k)
	if err != nil || s.Drafter == nil {
		return
	}
	of, fits := "MODEL", "models with "+fitText(s.Drafter)
	if s.Drafter.Made != "" {
		of, fits = s.Drafter.Made, s.Drafter.Made
	}
	if bases, err := h.bases(ctx); err == nil && len(bases) == 1 {
		of, fits = bases[0], bases[0]+", "+fitText(s.Drafter)
	}
	h.c.Remark(console.Printable(fmt.Sprintf("%s drafter for %s; use it with --model %s --drafter %s", s.Drafter.Kind, fits, of, h.l.Repo)))
}

// indexed is files without weights that an index of the repository leaves out, which are
// another variant of the model.
func indexed(ctx context.Context, client *hub.Client, l *hub.Listing, files []hub.File) ([]hub.File, error) {
	i := slices.IndexFunc(files, func(f hub.File) bool { return f.Path == checkpoint.IndexFile })
	if i < 0 {
		return files, nil
	}
	text, err := client.Read(ctx, l, files[i], maxIndex)
	if err != nil {
		return nil, err
	}
	shards, err := checkpoint.ParseIndex(text)
	if err != nil {
		return files, nil // opening the model reports the error
	}
	return slices.DeleteFunc(slices.Clone(files), func(f hub.File) bool {
		_, listed := shards[f.Path]
		return path.Ext(f.Path) == ".safetensors" && !strings.Contains(f.Path, "/") && !listed && !checkpoint.IsSidecar(f.Path)
	}), nil
}

// modelFolder is the folder in which all weights of a checkpoint are, "" for that of the repository.
func modelFolder(files []hub.File) string {
	inside := ""
	for _, f := range files {
		if path.Ext(f.Path) != ".safetensors" {
			continue
		}
		if inside = path.Dir(f.Path); inside == "." || checkpoint.IsSidecar(f.Path) {
			return ""
		}
	}
	return inside
}

// maxConfig is the maximum size of a config.json in bytes.
const maxConfig = 16 << 20

// runnableModel refuses a model of another family before its weights are fetched.
func runnableModel(ctx context.Context, client *hub.Client, l *hub.Listing, files []hub.File) error {
	i := slices.IndexFunc(files, func(f hub.File) bool { return f.Path == "config.json" })
	if i < 0 {
		return nil
	}
	data, err := client.Read(ctx, l, files[i], maxConfig)
	if err != nil {
		return err
	}
	if kind, ok := family(data); !ok {
		return fmt.Errorf("%s is a model of type %q, which is not supported; supported: %s. --force fetches it anyway",
			l.Repo, console.Printable(kind), flags.Alternatives(model.Types()))
	}
	return nil
}

// family is the model_type in a config.json, and whether it is supported, or the head
// of a supported one.
func family(config []byte) (kind string, known bool) {
	var c struct {
		Type string `json:"model_type"`
	}
	_ = json.Unmarshal(config, &c) // an invalid config has no type
	_, err := model.OfPart(config)
	return c.Type, err == nil
}

// advise adds advice to a network error.
func advise(err error, name string) error {
	if !errors.Is(err, hub.ErrUnreachable) && !errors.Is(err, hub.ErrOffline) {
		return err
	}
	help := "Without a network: copy a model folder from another machine and use --model DIR."
	if errors.Is(err, hub.ErrUnreachable) {
		help = "With a network: HTTPS_PROXY sets a proxy, HF_ENDPOINT another hub. " + help
	} else {
		help = "HF_HUB_OFFLINE is set: unset it to ask the hub. " + help
	}
	if cache, failed := load.HubCache(); failed == nil {
		if s, failed := cache.Find(name); failed == nil {
			help = fmt.Sprintf("The cache has %s at commit %s, and --model %s uses it without a network. %s", s.Repo, s.Commit[:12], name, help)
		}
	}
	return fmt.Errorf("%w\n%s", err, help)
}
