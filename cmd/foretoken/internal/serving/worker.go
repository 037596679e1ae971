package serving

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/server"
)

// Worker is the command that processes lines of batches.
func Worker() *cobra.Command {
	f := newServeFlags()
	f.headers, f.bodies, f.idle = server.DefaultHeaderTimeout, server.DefaultBodyTimeout, server.DefaultIdleTimeout
	f.host, f.drainTimeout = defaultHost, defaultDrain // flags of serve that a worker does not have
	cmd := &cobra.Command{
		Use:   "worker --queue URL [flags] [MODEL...]",
		Short: "Process batch lines that servers have accepted",
		Long: `Worker processes batch lines. It has models but no API: clients send batches to a server
('foretoken serve --queue URL'), and every worker with the same model takes lines. Models are the
same if their files and options are the same; names do not matter.

A worker may be stopped or killed at any time: its lines move to other workers. On Ctrl-C or SIGTERM
it returns them immediately. It opens no port unless --metrics-addr is set.`,
		Example: `  foretoken worker --queue nats://queue:4222 Qwen/Qwen3.5-4B --quantize 4
  foretoken worker --queue tls://a:4222,tls://b:4222,tls://c:4222 --queue-credentials worker.creds`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.models = append(f.models, args...)
			return runWorker(cmd, f)
		},
	}
	own := flags.NewGroup("Lines")
	fs := own.Flags()
	fs.SortFlags = false
	f.queueing.Add(own)
	fs.Var(&f.lines, "batch-lines", "maximum number of concurrent lines per model (default: --max-batch)")
	f.addMetrics(own)
	fs.StringVar(&f.stateDir, "state-dir", "", "`DIR` for a cache of files and weight digests (default: a temporary folder)")
	f.log.Add(own)
	flags.AddGroups(cmd, f.modelGroup(), f.memoryGroup(), own, f.model.Draft.Group(drafterOfSeveral))
	load.Complete(cmd)
	load.CompleteVision(cmd)
	f.queueing.Complete(cmd)
	f.log.Complete(cmd)
	return cmd
}

// runWorker runs the command.
func runWorker(cmd *cobra.Command, f *serveFlags) error {
	if f.queueing.Servers == "" {
		return flags.Usagef("--queue is missing: give the URL that the server uses, 'foretoken serve --queue URL'")
	}
	f.insecure = true // there is no API that a key would be for
	o, log, err := f.prepare(cmd)
	if err != nil {
		return err
	}
	batches, end, err := f.queueing.Open(cmd.Context(), f.stateDir, log)
	if err != nil {
		return err
	}
	defer end()
	batches.Lines, batches.Elsewhere = f.lines.Or(0), true
	o.Batches = batches
	s, err := server.New(o)
	if err != nil {
		return flags.Usage(err)
	}
	closeMetrics, err := f.serveGateway(log, s, nil)
	if err != nil {
		return err
	}
	defer closeMetrics()
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, f.endWaits)
	err = s.Work(ctx)
	if ctx.Err() != nil {
		err = nil // that is how it ends
	}
	return load.Explain(errors.Join(err, f.drain(context.Background(), s)))
}
