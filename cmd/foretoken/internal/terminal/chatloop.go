package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
)

const ChatHelp = `  /clear             clear the conversation
  /system TEXT       set the system message; without TEXT, show it
  /set NAME VALUE    set a sampling or limit flag, such as temp, top-p, seed or max-tokens;
                     default restores the value of the checkpoint
  /set thinking on   ask for thinking before the answer; also: off, default
  /show              show the model and the settings
  /help              show this help
  /exit              leave the chat (also Ctrl-D)
@PATH in a message attaches an image, an animated GIF or a folder of frames. Dragging a file onto
the terminal does the same. Quote or escape paths with spaces as in a shell; the tab key completes
paths.
Ctrl-C stops an answer. Enclose a message of several lines in """ and """.
`

// conversation is a chat on a terminal.
type conversation struct {
	*talk
	c        *console.Console
	s        *session
	lines    *lineReader
	messages []chat.Message // without the system message
	pending  []attachment   // for the next message
}

// chat talks with the user until the end of input. The attachments are for the first message.
func (t *talk) chat(ctx context.Context, c *console.Console, s *session, attached []attachment) error {
	in, ok := c.In.(*os.File)
	if !ok { // a terminal is a file
		return errors.New("a chat needs a terminal")
	}
	file := ""
	if !t.noHistory {
		file = historyFile()
	}
	// Without this, a Ctrl-C that comes when the answer has just ended would end the program.
	between := make(chan os.Signal, 1)
	signal.Notify(between, os.Interrupt)
	defer signal.Stop(between)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM) // which is to leave the terminal as it was
	defer stop()
	v := &conversation{talk: t, c: c, s: s, lines: newLineReader(in, c.Out, openHistory(file)), pending: attached}
	if err := c.Write(fmt.Sprintf("%s, %s. Type /help for the commands, Ctrl-D to leave.\n", s.Name(), s.size()) + attachedText(attached)); err != nil {
		return err
	}
	return v.loop(ctx)
}

// loop reads and answers. Ctrl-C twice in a row leaves, as the end of input does.
func (v *conversation) loop(ctx context.Context) error {
	pressed := false
	for {
		text, err := v.lines.readMessage(ctx)
		again := pressed && errors.Is(err, errCtrlC)
		pressed = errors.Is(err, errCtrlC)
		switch {
		case again, errors.Is(err, io.EOF):
			return nil
		case pressed:
			err = v.c.Write("Press Ctrl-C again or Ctrl-D to leave.\n")
		case errors.Is(err, errDropped):
			err = nil
		case err != nil:
			return err
		case strings.HasPrefix(text, "/") && !v.beginsWithFile(text):
			var leave bool
			if leave, err = v.command(text); leave {
				return nil
			}
		case strings.TrimSpace(text) != "":
			err = v.say(ctx, text)
		}
		if err != nil {
			return err
		}
	}
}

// say sends a message of the user to the model. An error of one message does not
// end the chat.
func (v *conversation) say(ctx context.Context, text string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	said, attached, err := v.input(text)
	if err != nil {
		return v.refuse(err, text)
	}
	if err := v.c.Write(attachedText(attached)); err != nil {
		return err
	}
	if !v.template.off {
		first := len(said.messages) - 1 // after the system message
		said.messages = append(said.messages[:first:first], append(v.messages, said.messages[first])...)
	}
	show, err := v.answer(ctx, v.c, v.s, said)
	switch {
	case console.IsOutputError(err):
		return err
	case isMediaError(err):
		return v.refuse(err, text)
	case err != nil && !errors.Is(err, console.ErrInterrupted):
		return v.complain(err)
	case v.template.off, err != nil && show.Content()+show.Reasoning() == "": // nothing was said
		return nil
	}
	v.messages = append(v.messages, said.messages[len(said.messages)-1], show.message())
	v.pending = nil
	return nil
}

// input is a message of the user, and its attachments.
func (v *conversation) input(text string) (*input, []attachment, error) {
	if v.template.off {
		return v.template.textInput(text), nil, nil
	}
	parts, attached, err := mentions(text)
	if err != nil || len(attached)+len(v.pending) == 0 {
		return v.template.textInput(text), nil, err
	}
	all := make([]chat.Part, 0, len(v.pending)+len(parts))
	for _, a := range v.pending {
		all = append(all, chat.Part{Media: a.Media})
	}
	return v.template.userInput(chat.Parts(append(all, parts...)...)), attached, nil
}

// beginsWithFile reports whether a line is a message that begins with a file, and no command.
func (v *conversation) beginsWithFile(line string) bool {
	_, n := mention(line)
	return n > 0 && !v.template.off
}

// attachedText lists the attachments, a line each.
func attachedText(list []attachment) string {
	text := ""
	for _, a := range list {
		text += fmt.Sprintf("attached %s\n", console.Printable(a.String()))
	}
	return text
}

// isMediaError reports whether err is about an image or video.
func isMediaError(err error) bool {
	var e *foretoken.MediaError
	return errors.As(err, &e) || errors.Is(err, foretoken.ErrNoVision)
}

// refuse shows the error of the files of a message, and returns the message for editing.
func (v *conversation) refuse(err error, text string) error {
	v.lines.restore(text)
	if len(v.pending) > 0 && isMediaError(err) {
		v.pending = nil
		err = fmt.Errorf("%w; the attachments of the command line are dropped", err)
	}
	return v.c.Write(fmt.Sprintf("foretoken: %s\n", console.Printable(err.Error())))
}

// message is the answer as a message of the conversation.
func (s *shown) message() chat.Message {
	m := chat.Message{Role: "assistant", Content: chat.Text(s.Content())}
	if r := s.Reasoning(); r != "" {
		m.ReasoningContent = &r
	}
	return m
}

// complain shows an error and the remedy in a chat.
func (v *conversation) complain(err error) error {
	text := fmt.Sprintf("foretoken: %s\n", console.Printable(err.Error()))
	if len(v.messages) > 0 {
		text += "Type /clear to clear the conversation.\n"
	}
	return v.c.Write(text)
}

// command executes a line that begins with a slash. It reports whether to leave.
func (v *conversation) command(line string) (leave bool, err error) {
	name, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	out := ""
	switch name {
	case "/exit", "/quit", "/bye":
		return true, nil
	case "/help", "/?":
		out = ChatHelp
	case "/clear":
		v.messages = nil
		out = "The conversation is cleared.\n"
	case "/system":
		out = v.setSystem(rest)
	case "/set":
		out = v.set(rest)
	case "/show":
		out = v.describe()
	default:
		out = fmt.Sprintf("Unknown command %s; type /help for a list.\n", console.Printable(name))
	}
	return false, v.c.Write(out)
}

func (v *conversation) setSystem(text string) string {
	switch {
	case v.template.off:
		return "There is no system message without the chat template.\n"
	case text != "":
		v.template.system.Value, v.template.system.Given = text, true
		return "The system message is set.\n"
	case v.template.system.Given:
		return v.template.system.Value + "\n"
	default:
		return "There is no system message.\n"
	}
}

// set changes a flag by its name, in the spelling of either world.
func (v *conversation) set(text string) string {
	text = strings.TrimSpace(strings.TrimPrefix(text, "parameter "))
	name, value, _ := strings.Cut(text, " ")
	name, value = strings.ReplaceAll(name, "_", "-"), strings.TrimSpace(value)
	if name == "" || value == "" {
		return "Want a name and a value, such as /set temp 0.7\n"
	}
	if name == "thinking" {
		return v.setThinking(value)
	}
	for _, g := range v.settable {
		f := g.Flags().Lookup(name)
		if f == nil {
			continue
		}
		if u, ok := f.Value.(interface{ Unset() }); ok && value == "default" {
			u.Unset()
			return name + " is the default of the checkpoint.\n"
		}
		if err := f.Value.Set(value); err != nil {
			if f.Value.Type() == "bool" {
				err = errors.New("want true or false")
			}
			return fmt.Sprintf("%s %s: %v\n", name, console.Printable(value), err)
		}
		return fmt.Sprintf("%s is %s.\n", name, f.Value)
	}
	return fmt.Sprintf("Unknown setting %s; type /show for a list.\n", console.Printable(name))
}

func (v *conversation) setThinking(value string) string {
	if value != "on" && value != "off" && value != "default" {
		return "thinking: want on, off or default\n"
	}
	v.template.noThinking = false
	v.template.thinking.Value, v.template.thinking.Given = value == "on", value != "default"
	return "thinking is " + value + ".\n"
}

// describe shows the model and the settings as they would be used now.
func (v *conversation) describe() string {
	var b strings.Builder
	i := v.s.Info()
	fmt.Fprintf(&b, "model: %s, %s, %s, %s on %s, %.1f MB\n", v.s.Name(), i.Family, v.s.size(), i.Compute, v.s.Device(), float64(i.Bytes)/1e6)
	if p := v.s.Placement(); len(p) > 1 {
		fmt.Fprintf(&b, "devices: %s\n", load.DescribePlacement(p))
	}
	fmt.Fprintf(&b, "context: %d tokens; %s so far\n", v.s.Context(), console.Counted(len(v.messages), "message"))
	fmt.Fprintf(&b, "speculative decoding: %s\n", v.s.Drafting())
	fmt.Fprintf(&b, "vision: %s\n", load.DescribeVision(i.Vision))
	if v.template.system.Given {
		fmt.Fprintf(&b, "system: %s\n", v.template.system.Value)
	}
	o, err := v.sampling.options(v.s.Sampling())
	if err != nil {
		fmt.Fprintf(&b, "%v\n", err)
	}
	fmt.Fprintf(&b, "temp: %v\ntop-p: %v\ntop-k: %d\nmin-p: %v\n", o.Temperature, o.TopP, o.TopK, o.MinP)
	fmt.Fprintf(&b, "xtc-probability: %v\nxtc-threshold: %v\n", o.XTCProbability, o.XTCThreshold)
	fmt.Fprintf(&b, "repetition-penalty: %v\nrepetition-context-size: %d\n", o.RepetitionPenalty, o.RepetitionWindow)
	fmt.Fprintf(&b, "presence-penalty: %v\nfrequency-penalty: %v\n", o.PresencePenalty, o.FrequencyPenalty)
	fmt.Fprintf(&b, "logit-bias: %s\n", or(v.sampling.bias.String(), "none"))
	fmt.Fprintf(&b, "seed: %s\n", or(v.sampling.seed.String(), "random for each answer"))
	fmt.Fprintf(&b, "max-tokens: %d\nstop: %s\n", v.limits.maxTokens.Or(v.limits.otherwise), or(v.limits.stop.String(), "none"))
	fmt.Fprintf(&b, "ignore-eos: %v\n", v.limits.ignoreEOS)
	return b.String()
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// size is how large the model is, for people.
func (s *session) size() string {
	if s.Info().Parameters < 1e9 {
		return fmt.Sprintf("%.0f million parameters", float64(s.Info().Parameters)/1e6)
	}
	return fmt.Sprintf("%.1f billion parameters", float64(s.Info().Parameters)/1e9)
}
