// Package terminal has the commands that answer prompts on a terminal: run, which chats or answers once, and
// generate, for scripts.
package terminal

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
)

// runTokens is the default maximum length of an answer: until the context is full.
const runTokens = 0

// talk is a run of the command run.
type talk struct {
	model        *load.Flags
	sampling     *samplingFlags
	limits       *limitFlags
	template     *templateFlags
	media        mediaFlags
	hideThinking bool
	noHistory    bool

	settable []flags.Group // whose flags /set may change
}

// Run is the command that chats, or answers one prompt.
func Run() *cobra.Command {
	t := &talk{
		model: load.NewFlags(), sampling: newSamplingFlags(), limits: newLimitFlags(runTokens), template: newTemplateFlags(),
		media: newMediaFlags(),
	}
	cmd := &cobra.Command{
		Use:   "run [flags] [PROMPT]",
		Short: "Answer a prompt, or chat on a terminal",
		Long: `Run answers one prompt. Without a prompt, on a terminal, it starts a chat; type /help there for
its commands.

Piped input is the prompt. If there is also a PROMPT, the input follows it after a blank line.
--image and --video place images and videos before the prompt. Thinking is shown faint on a
terminal and between <think> tags otherwise. Ctrl-C stops an answer.`,
		Example: `  foretoken run "Tell me a story about a cat."
  foretoken run
  foretoken run --model ~/models/Qwen3.5-4B --quantize 4 --system "You are terse."
  foretoken run "Summarize this:" < notes.txt
  foretoken run --image photo.jpg "What do you see?"`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return t.run(cmd, args) },
	}
	conversation := flags.NewGroup("Conversation")
	fs := conversation.Flags()
	fs.SortFlags = false
	t.media.add(conversation)
	t.template.add(conversation)
	fs.BoolVar(&t.hideThinking, "hidethinking", false, "do not show the thinking")
	fs.BoolVar(&t.noHistory, "nohistory", false, "do not store the input history of the chat")
	t.settable = []flags.Group{t.sampling.group(), t.limits.group()}
	model := t.model.Group()
	t.model.Vision.Add(model)
	flags.AddGroups(cmd, conversation, model, t.model.Draft.Group(""), t.settable[0], t.settable[1])
	load.Complete(cmd)
	load.CompleteVision(cmd)
	completeMedia(cmd)
	return cmd
}

func (t *talk) run(cmd *cobra.Command, args []string) (err error) {
	if err := errors.Join(t.template.validate(), t.model.Draft.Validate(), t.model.Vision.Validate(), t.media.validate(&t.model.Vision, t.template)); err != nil {
		return err
	}
	c := console.New(cmd)
	attached, err := t.media.read()
	if err != nil {
		return err
	}
	text, talks, err := runText(c, args, len(attached) > 0)
	if err != nil {
		return err
	}
	if !talks && len(attached) == 0 {
		t.model.Vision.Off = true // there is nothing to see, and will not be
	}
	t.model.Talks = !t.template.off
	ctx, stop := console.Interruptible(cmd.Context())
	defer stop()
	m, err := t.model.Open(ctx, c, console.NewNotes(t.model.Verbose))
	if err != nil {
		return err
	}
	s := &session{m}
	defer func() { err = errors.Join(err, s.Close()) }()
	if talks {
		m.Detach()
		stop()
		return t.chat(cmd.Context(), c, s, attached)
	}
	_, err = t.answer(ctx, c, s, t.template.textInput(text, attached...))
	return err
}

// runText is the prompt: the arguments, then the piped text, which may be empty if
// files are attached; or talks is true.
func runText(c *console.Console, args []string, attached bool) (text string, talks bool, err error) {
	text = strings.Join(args, " ")
	piped := ""
	if c.Piped() {
		if piped, err = c.ReadText(); err != nil {
			return "", false, err
		}
		if text != "" && piped != "" {
			text += "\n\n"
		}
		text += piped
	}
	switch {
	case text != "":
		return text, false, nil
	case len(args) == 0 && c.InTerminal && c.OutTerminal:
		return "", true, nil
	case attached:
		return "", false, nil
	case c.Piped():
		return "", false, flags.Usagef("standard input: the prompt is empty")
	case len(args) > 0:
		return "", false, flags.Usagef("the prompt is empty")
	default:
		return "", false, flags.Usagef("there is no prompt: give one as an argument or pipe it in; a chat needs a terminal for input and output")
	}
}

// answer asks the model and shows the answer. It returns the text so far also with an
// error.
func (t *talk) answer(ctx context.Context, c *console.Console, s *session, in *input) (*shown, error) {
	p, err := s.prompt(ctx, in, t.template)
	if err != nil {
		return nil, err
	}
	q, err := s.question(p, t.sampling, t.limits, -1)
	if err != nil {
		return nil, err
	}
	show := newShown(c, t.hideThinking)
	a, err := s.ask(ctx, q, show.write)
	if a == nil {
		return nil, err
	}
	if !console.IsOutputError(err) {
		err = errors.Join(err, show.end())
	}
	if c.ErrTerminal || t.model.Verbose {
		c.Remark(a.summary(q.Sampling.Seed))
		if r := &a.Result.Speculation; r.Any() {
			c.Remark(load.DescribeSpeculation(r))
		}
	}
	return show, err
}
