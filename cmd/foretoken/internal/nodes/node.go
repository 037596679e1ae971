// Package nodes has the command node, which lends the device of a machine to a leader: another process that
// computes a model on several machines.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/backend/remote/link"
	"github.com/foretoken/foretoken/internal/node"
	"github.com/foretoken/foretoken/internal/rescue"
)

// nodeFlags are those of the command.
type nodeFlags struct {
	listen, token, stateDir, metricsAddr string
	leaders, weights                     flags.Texts
	memory                               flags.Setting[memory]
	cache                                flags.Setting[int64]
	print                                bool
	device                               load.DeviceFlags
	log                                  load.LogFlags
}

// Defaults of flags.
const (
	defaultListen = "127.0.0.1:7070"
	defaultCache  = 50 << 30
)

// Node is the command.
func Node() *cobra.Command {
	f := &nodeFlags{device: load.NewDeviceFlags(), log: load.NewLogFlags(), memory: newMemory(), cache: flags.ByteCount()}
	cmd := &cobra.Command{
		Use:   "node [flags]",
		Short: "Lend the compute device of this machine to a leader on another machine",
		Long: `Node lends a device to a leader: 'foretoken serve --node HOST:PORT#FINGERPRINT' and other commands
compute a part of a model on it, with the same bits. It serves one leader at a time. When a leader
ends, its memory is freed, and the node waits for the next.

On a network both sides prove who they are, over TLS 1.3. At its first start a machine makes a key;
its fingerprint is printed. The leader names the node's fingerprint behind the address. The node
names its leaders with --leader; 'foretoken node --fingerprint' prints a leader's. Or both have the
same --node-token file. On 127.0.0.1 neither is needed.

A matrix that this machine has in its own files, byte for byte, is read from them (--weights).
What the leader has to send is kept for the next start (--cache-size).`,
		Example: `  foretoken node --fingerprint
  foretoken node --listen 0.0.0.0:7070 --leader gq3tkmzq4yd5c2fwx7bnhs6r2j4vae5u
  foretoken node --listen 0.0.0.0:7070 --node-token token --device cuda --memory 80%`,
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	network := flags.NewGroup("Network")
	fs := network.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.listen, "listen", defaultListen, "`HOST:PORT` to listen on; 0.0.0.0:PORT listens on all interfaces; other machines need --leader or --node-token; port 0: any free port")
	fs.Var(&f.leaders, "leader", "`FINGERPRINT` of a leader that may use the node; may be repeated")
	fs.StringVar(&f.token, "node-token", "", "`FILE` with a secret that leaders have too: one line of at least 32 random characters")
	fs.BoolVar(&f.print, "fingerprint", false, "print the fingerprint of this machine, and end")
	fs.StringVar(&f.metricsAddr, "metrics-addr", "", "serve /metrics, /healthz and /readyz at `HOST:PORT`, without a key")
	f.log.Add(network)
	device := flags.NewGroup("Device")
	f.device.AddDevice(device)
	device.Flags().Var(&f.memory, "memory", "memory that a leader may use: a share of what is free when it comes, or a size (default 90%)")
	files := flags.NewGroup("Weights")
	fs = files.Flags()
	fs.SortFlags = false
	fs.Var(&f.weights, "weights", "`MODEL` whose files may have the leader's weights: a checkpoint folder, a GGUF file or ORG/NAME; may be repeated (default: all models of the Hugging Face cache)")
	fs.Var(&f.cache, "cache-size", "maximum size of what leaders have sent, which is kept in the state folder; 1KiB keeps nothing (default 50GiB)")
	fs.StringVar(&f.stateDir, "state-dir", "", "`DIR` of the key, of digests and of what leaders have sent (default: foretoken in the user's state folder)")
	flags.AddGroups(cmd, network, device, files)
	f.complete(cmd)
	return cmd
}

// complete adds shell completion.
func (f *nodeFlags) complete(cmd *cobra.Command) {
	load.CompleteDevice(cmd)
	f.log.Complete(cmd)
	for name, words := range map[string][]cobra.Completion{"listen": {defaultListen, "0.0.0.0:7070"}, "memory": {"90%", "50%"}} {
		flags.Must(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
	}
	flags.Must(cmd.RegisterFlagCompletionFunc("weights", func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return load.CompleteName(typed)
	}))
	flags.Must(cmd.MarkFlagDirname("state-dir"))
}

// run runs the command.
func (f *nodeFlags) run(cmd *cobra.Command) (err error) {
	folder := f.stateDir
	if folder == "" {
		folder = load.StateFolder()
	}
	key, err := load.Identity(folder)
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("%w; choose another folder with --state-dir", err)
	} else if err != nil {
		return err
	}
	if f.print {
		return console.New(cmd).Write(key.Fingerprint().String() + "\n")
	}
	log, err := f.log.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	ctx, stop := console.Interruptible(cmd.Context())
	defer stop()
	x := &lender{log: log}
	o := link.Options{Identity: key, Refused: x.refuse}
	if err := f.known(&o); err != nil {
		return err
	}
	if x.weights, err = f.openWeights(folder, log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.weights.Close()) }()
	b, err := f.device.OpenDevice() // leaders are not to find out that there is none
	if err != nil {
		return err
	}
	name, free := b.Name(), b.FreeMemory()
	if err := b.Close(); err != nil {
		return err
	}
	memory := f.memory.Or(memory{share: 0.9})
	x.server = &remote.Server{
		Open:    func() (backend.Backend, error) { return x.open(&f.device, memory) },
		Weights: x.weights, Version: load.Version, Log: log,
	}
	raw, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("%w; choose another address with --listen", err)
	}
	l, err := link.Listen(metered{raw, &x.read}, o)
	if err != nil {
		return errors.Join(flags.Usagef("--listen: %v: --leader FINGERPRINT or --node-token FILE", err), raw.Close())
	}
	end, err := f.serveMetrics(log, x)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer end()
	log.Info("listening for a leader", "address", l.Addr().String(), "fingerprint", key.Fingerprint().String(), "device", name, "memory_bytes", memory.of(free))
	go x.tell(ctx)
	err = rescue.Do(func() error { return x.server.Serve(ctx, l) })
	if ctx.Err() == nil || backend.Lost(err) {
		return err
	}
	log.Info("the node ends")
	return nil
}

// known is whom the node accepts.
func (f *nodeFlags) known(o *link.Options) (err error) {
	for _, text := range f.leaders {
		print, err := link.ParseFingerprint(text)
		if err != nil {
			return flags.Usagef("--leader: %v", err)
		}
		o.Leaders = append(o.Leaders, print)
	}
	if f.token != "" {
		if o.Token, err = link.ReadToken(f.token); err != nil {
			return fmt.Errorf("--node-token: %w", err)
		}
	}
	return nil
}

// openWeights opens the weights of this machine: those of its models, and what leaders have sent.
func (f *nodeFlags) openWeights(folder string, log *slog.Logger) (*node.Weights, error) {
	for _, name := range f.weights {
		if _, err := load.Resolve(name); err != nil {
			return nil, fmt.Errorf("--weights: %w", err)
		}
	}
	return node.OpenWeights(node.WeightOptions{Models: f.models, Folder: filepath.Join(folder, "node"), Limit: f.cache.Or(defaultCache), Log: log})
}

// models are the folders and files of models at this moment.
func (f *nodeFlags) models() []string {
	names, list := []string(f.weights), []string{load.Embedded}
	if len(names) == 0 {
		names = load.CachedNames("")
	}
	for _, name := range names {
		if path, err := load.Resolve(name); err == nil { // one that is not complete has no weights to offer
			list = append(list, path)
		}
	}
	return list
}

// lender is a running node.
type lender struct {
	log     *slog.Logger
	weights *node.Weights
	server  *remote.Server

	refused atomic.Int64
	told    atomic.Int64 // second in which a refused connection was logged last
	read    atomic.Int64 // bytes from the network
}

// open opens the device for a leader.
func (x *lender) open(f *load.DeviceFlags, m memory) (backend.Backend, error) {
	x.weights.Begin()
	b, err := f.OpenDevice()
	if err == nil {
		x.server.Budget = m.of(b.FreeMemory()) // read when it was opened
	}
	return b, err
}

// refuse counts connections that were refused, and logs one each second: anyone may cause them.
func (x *lender) refuse(from net.Addr, err error) {
	n := x.refused.Add(1)
	if second := time.Now().Unix(); x.told.Swap(second) != second {
		x.log.Warn("a connection was refused", "from", from.String(), "error", err, "refused_so_far", n)
	}
}

// tell logs what the node receives and holds.
func (x *lender) tell(ctx context.Context) {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for w := (watch{lender: x}); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.look(x.server.Status(), x.read.Load())
		}
	}
}

// watch is the log of a leader's weights.
type watch struct {
	*lender
	told, before remote.Status
	read, began  int64 // bytes from the network at the last look, and before the leader came
}

// quiet is how many bytes come between two looks if none are of weights: those of pings.
const quiet = 64 << 10

// look logs what the node receives, or holds if that has not changed since the last look and no part of a matrix has come.
func (w *watch) look(now remote.Status, read int64) {
	came := now.Since != w.before.Since
	if came {
		w.began = w.read
	}
	same := now.Leader != "" && !came && now.Found == w.before.Found && now.Received == w.before.Received
	switch {
	case now.Leader != "" && now.Passes == w.before.Passes && read-w.read > quiet:
		w.log.Info("receiving weights", "leader", now.Leader, "received_bytes", read-w.began, "found_bytes", now.Found)
	case same && now.Found+now.Received > 0 && (now.Since != w.told.Since || now.Found != w.told.Found || now.Received != w.told.Received):
		w.log.Info("holds a part of a model", "leader", now.Leader, "own_files", w.weights.Held(), "found_bytes", now.Found, "sent_bytes", now.Received, "used_bytes", now.Used, "memory_bytes", now.Budget)
		w.told = now
	case now.Leader == "" && w.before.Leader != "":
		w.weights.Idle()
	}
	w.before, w.read = now, read
}

// metered is a listener that counts the bytes of its connections.
type metered struct {
	net.Listener
	read *atomic.Int64
}

// Accept implements net.Listener.
func (l metered) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		c = meter{c, l.read}
	}
	return c, err
}

type meter struct {
	net.Conn
	read *atomic.Int64
}

// Read implements net.Conn.
func (c meter) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

// memory is what a leader may use of a device: bytes, or a share of what is free.
type memory struct {
	bytes int64
	share float64
}

// of is the memory in bytes, of free ones.
func (m memory) of(free int64) int64 {
	if m.share > 0 {
		return int64(m.share * float64(free))
	}
	return min(m.bytes, free)
}

// newMemory is the setting of a memory.
func newMemory() flags.Setting[memory] {
	want := errors.New("want a share such as 90%, or a size such as 20GB")
	return flags.Setting[memory]{
		Kind: "SHARE|SIZE",
		Parse: func(text string) (memory, error) {
			if digits, ok := strings.CutSuffix(text, "%"); ok {
				n, err := strconv.ParseFloat(digits, 64)
				if err != nil || !(n >= 1 && n <= 100) {
					return memory{}, want
				}
				return memory{share: n / 100}, nil
			}
			size := flags.ByteCount()
			if err := size.Set(text); err != nil {
				return memory{}, want
			}
			return memory{bytes: size.Value}, nil
		},
		Check: func(memory) error { return nil },
	}
}
