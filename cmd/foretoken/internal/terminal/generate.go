package terminal

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
)

// generateTokens is the default maximum length of an answer.
const generateTokens = 512

// generation is a run of the command generate.
type generation struct {
	model    *load.Flags
	sampling *samplingFlags
	limits   *limitFlags
	template *templateFlags
	media    mediaFlags

	prompt    string
	promptIDs string
	messages  string
	logprobs  flags.Setting[int]
	json      bool
}

// Generate is the command that answers one prompt, as text or as JSON.
func Generate() *cobra.Command {
	g := &generation{
		model: load.NewFlags(), sampling: newSamplingFlags(), limits: newLimitFlags(generateTokens), template: newTemplateFlags(),
		media: newMediaFlags(), logprobs: flags.Whole(0, 1000),
	}
	cmd := &cobra.Command{
		Use:   "generate [flags]",
		Short: "Generate text from a prompt, a conversation or token ids, for scripts",
		Long: `Generate streams the generated text to standard output and prints nothing else there. With --json
it prints one object with ids, log-probabilities, timings and speculation stats.

The prompt is the user's message in the checkpoint's chat template, unless --no-chat-template is
set. Without --prompt, --prompt-ids and --messages, standard input is the prompt, without
its final line break. --image and --video place images and videos before the prompt; --messages
refers to them by path or data: URL.

Names of control tokens are tokens in --prompt and without the template. In --messages and in
standard input they are text. Thinking and tool calls are part of the output, as generated. Ctrl-C
stops the generation.

Exit status: 0 success, 1 error, 2 invalid command line, 130 interrupted by Ctrl-C.`,
		Example: `  foretoken generate --prompt "Tell me a story about a cat." --max-tokens 100
  foretoken generate --prompt "Once upon a time" --no-chat-template --temp 0
  foretoken generate --prompt-ids 12,345,6 --json --logprobs 5
  foretoken generate --model ~/models/Qwen3.5-4B --messages chat.json --seed 7
  foretoken generate --prompt "What do you see?" --image photo.jpg --temp 0
  echo "What is a cat?" | foretoken generate --system "Answer briefly." --stop .`,
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return g.run(cmd) },
	}
	input := flags.NewGroup("Prompt")
	fs := input.Flags()
	fs.SortFlags = false
	fs.StringVarP(&g.prompt, "prompt", "p", "", "prompt `TEXT`; -: standard input")
	fs.StringVar(&g.promptIDs, "prompt-ids", "", "prompt as token ids, such as `1,2,3`; no template")
	fs.StringVar(&g.messages, "messages", "", "`FILE` with a conversation: a JSON array of messages, or an object with messages and tools; -: standard input")
	g.media.add(input)
	g.template.add(input)
	output := flags.NewGroup("Output")
	output.Flags().BoolVar(&g.json, "json", false, "print one JSON object at the end instead of the text")
	output.Flags().Var(&g.logprobs, "logprobs", "with --json: report the log-probabilities of each token and of the N most likely tokens at its position")
	model := g.model.Group()
	g.model.Vision.Add(model)
	flags.AddGroups(cmd, input, model, g.model.Draft.Group(""), g.sampling.group(), g.limits.group(), output)
	load.Complete(cmd)
	load.CompleteVision(cmd)
	completeMedia(cmd)
	flags.Must(cmd.MarkFlagFilename("messages", "json"))
	return cmd
}

func (g *generation) run(cmd *cobra.Command) (err error) {
	c := console.New(cmd)
	log := console.NewNotes(g.model.Verbose)
	if err := g.validate(cmd); err != nil {
		return err
	}
	in, err := g.input(cmd, c, log)
	if err != nil {
		return err
	}
	if !in.hasMedia() {
		g.model.Vision.Off = true // there is nothing to see
	}
	g.model.Talks = in.messages != nil
	ctx, stop := console.Interruptible(cmd.Context())
	defer stop()
	m, err := g.model.Open(ctx, c, log)
	if err != nil {
		return err
	}
	s := &session{m}
	defer func() { err = errors.Join(err, s.Close()) }()
	p, err := s.prompt(ctx, in, g.template)
	if err != nil {
		return err
	}
	q, err := s.question(p, g.sampling, g.limits, g.logprobs.Or(-1))
	if err != nil {
		return err
	}
	q.Raw, q.Hash = true, true
	return g.answer(ctx, c, s, q)
}

// validate refuses flags that make no sense together.
func (g *generation) validate(cmd *cobra.Command) error {
	if err := errors.Join(g.template.validate(), g.model.Draft.Validate(), g.model.Vision.Validate(), g.media.validate(&g.model.Vision, g.template)); err != nil {
		return err
	}
	if g.logprobs.Given && !g.json {
		return flags.Usagef("--logprobs needs --json")
	}
	var given []string
	for _, name := range []string{"prompt", "prompt-ids", "messages"} {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	switch media := len(g.media.images)+len(g.media.videos) > 0; {
	case media && len(given) == 1 && given[0] != "--prompt":
		return flags.Usagef("--image and --video cannot be combined with %s: use --prompt", given[0])
	case len(given) > 1:
		return flags.Usagef("%s and %s cannot be combined", given[0], given[1])
	case len(given) == 1 && given[0] == "--prompt-ids":
		return g.template.unused("--prompt-ids")
	case len(given) == 1 && given[0] == "--messages" && g.template.off:
		return flags.Usagef("--messages and --no-chat-template cannot be combined: messages need the chat template")
	}
	return nil
}

// input reads the prompt, before the model is loaded.
func (g *generation) input(cmd *cobra.Command, c *console.Console, log *console.Notes) (*input, error) {
	changed := cmd.Flags().Changed
	attached, err := g.media.read()
	if err != nil {
		return nil, err
	}
	switch {
	case changed("prompt-ids"):
		ids, err := parseIDs(g.promptIDs)
		return &input{ids: ids}, err
	case changed("messages"):
		return g.template.readMessages(c, g.messages, log)
	case changed("prompt") && g.prompt != "-":
		in := g.template.textInput(g.prompt, attached...)
		in.trusted = true // it was typed here, and no file or page wrote it
		return in, nil
	case !changed("prompt") && !c.Piped() && len(attached) > 0:
		return g.template.textInput("", attached...), nil
	case !changed("prompt") && !c.Piped():
		return nil, flags.Usagef("there is no prompt: give --prompt, --prompt-ids or --messages, or pipe one in")
	}
	text, err := c.ReadText()
	if err == nil && text == "" && len(attached) == 0 {
		err = flags.Usagef("standard input: the prompt is empty")
	}
	return g.template.textInput(text, attached...), err
}

// answer runs the question and prints the answer.
func (g *generation) answer(ctx context.Context, c *console.Console, s *session, q foretoken.Request) error {
	emit := func(p foretoken.Piece) error { return c.Print(p.Text) }
	if g.json {
		emit = func(foretoken.Piece) error { return nil }
	}
	a, err := s.ask(ctx, q, emit)
	if a == nil {
		return err
	}
	if g.json {
		return errors.Join(newReport(s, &q, a, err).write(c.Out), err)
	}
	if c.OutTerminal {
		err = errors.Join(err, c.Write("\n")) // so that the shell begins on a new line
	}
	if g.model.Verbose {
		c.Remark(a.summary(q.Sampling.Seed))
		if r := &a.Result.Speculation; r.Any() {
			c.Remark(load.DescribeSpeculation(r))
		}
	}
	return err
}
