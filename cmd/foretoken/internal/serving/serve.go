// Package serving has the commands serve, which answers requests over HTTP, and worker, which processes lines of
// batches that servers have accepted.
package serving

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/rescue"
	"github.com/foretoken/foretoken/internal/server"
)

// Serve is the command that answers requests over HTTP.
func Serve() *cobra.Command {
	f := newServeFlags()
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Serve models over HTTP: the OpenAI, Anthropic and Ollama APIs, and a chat page",
		Long: `Serve answers requests over HTTP. Clients of OpenAI, Anthropic and Ollama only need another base
URL. The chat page is at /.

By default the server accepts connections from this machine only. Another --host requires an API
key. On Ctrl-C or SIGTERM it refuses new requests and finishes running ones within --drain-timeout.
A second signal stops it immediately.

/healthz and /readyz are for probes, /metrics for Prometheus, /v1/status for operators. Gateways for
several servers use --metrics-addr and --kv-events: see docs/scale.md.`,
		Example: `  foretoken serve
  foretoken serve --model ~/models/Qwen3.5-4B --quantize 4 --served-model-name gpt-4o
  foretoken serve --model Qwen/Qwen3.5-4B --model tiny --models-memory 16GiB --keep-alive 10m
  FORETOKEN_API_KEY=$(cat key) foretoken serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
  curl localhost:8080/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hi."}]}'`,
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd, f) },
	}
	flags.AddGroups(cmd, f.groups()...)
	load.Complete(cmd)
	load.CompleteVision(cmd)
	f.complete(cmd)
	return cmd
}

// prepare returns the options of a server or worker, and its log.
func (f *serveFlags) prepare(cmd *cobra.Command) (o server.Options, log *slog.Logger, err error) {
	if log, err = f.log.Logger(cmd.ErrOrStderr()); err != nil {
		return o, nil, err
	}
	ctx, end := context.WithCancel(cmd.Context())
	f.endWaits = end
	if o, err = f.options(ctx, log); err != nil {
		return o, nil, err
	}
	load.AddSlot(f.model.Threads.Or(load.Threads()))
	o.Log = log
	o.Ready = func() {
		log.Info("ready")
		notify(log, "READY=1")
	}
	return o, log, nil
}

// serve runs the command.
func serve(cmd *cobra.Command, f *serveFlags) error {
	o, log, err := f.prepare(cmd)
	if err != nil {
		return err
	}
	if o.Events, err = f.publisher(log); err != nil {
		return err
	}
	if o.Events != nil {
		defer o.Events.Close()
	}
	closeBatches, err := f.openBatches(cmd.Context(), log, &o)
	if err != nil {
		return err
	}
	defer closeBatches()
	s, err := server.New(o)
	if err != nil {
		return flags.Usage(err)
	}
	ctx, stop := console.Interruptible(cmd.Context())
	defer stop()
	l, err := net.Listen("tcp", net.JoinHostPort(f.host, strconv.Itoa(f.port.Or(DefaultPort))))
	if err != nil {
		return fmt.Errorf("%w; choose another address with --host, or another port with --port", err)
	}
	end, err := f.serveGateway(log, s, o.Events)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer end()
	scheme := "http"
	if o.TLS != nil {
		scheme = "https"
	}
	log.Info("listening", "url", scheme+"://"+l.Addr().String(), "models", modelNames(&o), "api_key", o.Keys != nil)
	ended := make(chan error, 1)
	go func() { ended <- rescue.Do(func() error { return s.Serve(l) }) }()
	select {
	case err = <-ended:
		return load.Explain(errors.Join(err, f.drain(context.Background(), s)))
	case <-ctx.Done():
	}
	again, stopAgain := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stopAgain()
	notify(log, "STOPPING=1")
	log.Info("draining", "timeout", f.drainTimeout.String())
	err = f.drain(again, s)
	if again.Err() != nil {
		log.Warn("stopped by a second signal", "error", err)
		return console.ErrInterrupted
	}
	return errors.Join(err, <-ended)
}

// drain lets requests end, until ctx does. None waits for a node that is away.
func (f *serveFlags) drain(ctx context.Context, s *server.Server) error {
	f.endWaits()
	ctx, cancel := context.WithTimeout(ctx, f.drainTimeout)
	defer cancel()
	return s.Shutdown(ctx)
}

// modelNames lists the models of a server, for people.
func modelNames(o *server.Options) []string {
	names := make([]string, 0, len(o.Models))
	for _, m := range o.Models {
		names = append(names, m.Name)
	}
	return names
}

// notify tells systemd the state of the service, if it is configured.
func notify(log *slog.Logger, state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	// The library writes a leading @ as the zero byte of an abstract name.
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		_, err = c.Write([]byte(state))
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		log.Warn("NOTIFY_SOCKET", "error", err)
	}
}

// drafter is the value of --drafter for a model: the one that names it, else one that names none.
func (f *serveFlags) drafter(typed string) string {
	general := ""
	for _, text := range f.model.Draft.Files {
		of, name, ok := strings.Cut(text, "=")
		switch {
		case ok && of == typed:
			return name
		case !ok || !slices.Contains(f.models, of):
			general = text
		}
	}
	return general
}

// served finds the models of --model, with their names.
func (f *serveFlags) served() (list []server.Model, aliases map[string]string, err error) {
	typed := []string(f.models)
	if len(typed) == 0 {
		typed = []string{load.Embedded}
	}
	for _, text := range f.model.Draft.Files {
		of, _, ok := strings.Cut(text, "=")
		if _, err := os.Stat(text); ok && !slices.Contains(typed, of) && err != nil {
			return nil, nil, flags.Usagef("--drafter %s: want DRAFTER, or MODEL=DRAFTER with MODEL as in --model", text)
		}
	}
	o := f.modelOptions()
	called := map[string]string{} // typed name → name
	aliases = map[string]string{}
	for _, t := range typed {
		path, err := load.Resolve(t)
		if err != nil {
			return nil, nil, err
		}
		name := load.ServedName(t, path)
		if slices.ContainsFunc(list, func(m server.Model) bool { return m.Name == name }) {
			return nil, nil, flags.Usagef("--model %s: another model has the name %s", t, name)
		}
		called[t], called[name] = name, name
		own := o
		if err := f.model.Draft.Settle(&own.Speculation, t, path, f.drafter(t)); err != nil {
			return nil, nil, err
		}
		list = append(list, server.Model{Name: name, Path: path, Options: own, Preload: f.preload})
		if _, short, ok := strings.Cut(name, "/"); ok && aliases[short] == "" {
			aliases[short] = name
		}
	}
	for _, m := range list {
		delete(aliases, m.Name) // which is another model's name
	}
	for _, text := range f.aliases {
		alias, t, ok := strings.Cut(text, "=")
		if !ok {
			t = typed[0]
		}
		if aliases[alias] = called[t]; alias == "" || aliases[alias] == "" {
			return nil, nil, flags.Usagef("--served-model-name %s: want ALIAS, or ALIAS=MODEL with MODEL as in --model", text)
		}
	}
	for _, t := range f.pinned {
		i := slices.IndexFunc(list, func(m server.Model) bool { return m.Name == called[t] })
		if i < 0 {
			return nil, nil, flags.Usagef("--pin %s: it is not a model of --model", t)
		}
		list[i].Pinned = true
	}
	return list, aliases, nil
}
