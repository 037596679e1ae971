package load

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/backend/remote/link"
	"github.com/foretoken/foretoken/internal/models"
	"github.com/foretoken/foretoken/internal/node"
	"github.com/foretoken/foretoken/internal/private"
)

// Version is the version of the program, which nodes and leaders tell each other.
var Version string

// defaultWait is how long a node may be away.
const defaultWait = 60 * time.Second

// NodeFlags name nodes that compute parts of a model.
type NodeFlags struct {
	list  nodeList
	token string
	wait  time.Duration
}

func NewNodeFlags() NodeFlags { return NodeFlags{wait: defaultWait} }

// AddNodes adds the flags to a group.
func (f *NodeFlags) AddNodes(g flags.Group) {
	fs := g.Flags()
	fs.Var(&f.list, "node", "compute some layers on the machine at `HOST:PORT#FINGERPRINT`, where 'foretoken node' runs and prints its fingerprint; without #FINGERPRINT if both have --node-token, or on 127.0.0.1; may be repeated")
	fs.StringVar(&f.token, "node-token", "", "`FILE` with the secret that nodes have too: one line of at least 32 random characters")
	fs.DurationVar(&f.wait, "node-wait", f.wait, "maximum time that a node may be away before its model ends")
}

// CompleteNodes adds shell completion.
func CompleteNodes(cmd *cobra.Command) {
	flags.Must(cmd.RegisterFlagCompletionFunc("node", cobra.NoFileCompletions))
	flags.Must(cmd.RegisterFlagCompletionFunc("node-wait", cobra.FixedCompletions([]cobra.Completion{"10s", "60s", "5m"}, cobra.ShellCompDirectiveNoFileComp)))
}

// CompletePlacement adds shell completion of all flags that say where a model is computed.
func CompletePlacement(cmd *cobra.Command) {
	CompleteDevice(cmd)
	CompleteOffload(cmd)
	CompleteNodes(cmd)
}

// nodeList collects addresses.
type nodeList []link.Address

// Set implements the flag library's Value.
func (l *nodeList) Set(text string) error {
	a, err := link.ParseAddress(text)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(*l, func(b link.Address) bool { return a.HostPort == b.HostPort }) {
		return fmt.Errorf("node %s is there twice", a)
	}
	*l = append(*l, a)
	return nil
}

// String lists the addresses.
func (l *nodeList) String() string {
	text := make([]string, len(*l))
	for i, a := range *l {
		text[i] = a.String()
	}
	return strings.Join(text, " ")
}

// Names are the addresses of the nodes, in the order of Nodes.
func (f *NodeFlags) Names() []string { return strings.Fields(f.list.String()) }

// Type names the value in help.
func (l *nodeList) Type() string { return "HOST:PORT#FINGERPRINT" }

// Unset forgets all addresses.
func (l *nodeList) Unset() { *l = nil }

// Nodes says how the nodes of a command line are used.
type Nodes struct {
	Models  []string     // folders and files to load weights from again, on a node that was restarted
	Patient bool         // wait for nodes that are not there yet
	Log     *slog.Logger // nil: silent
}

// SetNodes adds the nodes to the devices of a model at path. Its weights and those of its drafter are among n.Models.
func (f *NodeFlags) SetNodes(ctx context.Context, o *foretoken.Options, path string, n Nodes) error {
	drafter := o.Speculation.Drafter
	if drafter == "" && len(f.list) > 0 {
		drafter, _ = models.FindDrafter(path, models.Name(path), nil) // opening the model reports why some are not used
	}
	if n.Models = []string{path}; drafter != "" && drafter != foretoken.DrafterOff {
		n.Models = append(n.Models, drafter)
	}
	list, err := f.Nodes(ctx, n)
	private.SetDevices(o, list...)
	return err
}

// over is the error of waiting that its context has ended.
type over struct{ error }

// Permanent marks an error that waiting does not end.
func (over) Permanent() {}

// Nodes returns a function for each node that opens its device. When ctx is done, nothing waits for a node that is away. Nodes that are
// there stay connected.
func (f *NodeFlags) Nodes(ctx context.Context, n Nodes) (list []func() (backend.Backend, error), err error) {
	switch {
	case len(f.list) == 0 && f.token != "":
		return nil, flags.Usagef("--node-token needs --node")
	case len(f.list) == 0:
		return nil, nil
	case f.wait < 0:
		return nil, flags.Usagef("--node-wait: %v, want a time, 0 or more", f.wait)
	}
	var d link.Dialer
	folder := StateFolder()
	if f.token != "" {
		if d.Token, err = link.ReadToken(f.token); err != nil {
			return nil, fmt.Errorf("--node-token: %w", err)
		}
	}
	if d.Identity, err = Identity(folder); err != nil {
		return nil, err
	}
	if n.Log == nil {
		n.Log = slog.New(slog.DiscardHandler)
	}
	n.Log.Info("leader of nodes", "fingerprint", d.Identity.Fingerprint().String())
	o := node.WeightOptions{Models: func() []string { return n.Models }, Folder: filepath.Join(folder, "node"), Log: n.Log}
	own, err := node.OpenWeights(o)
	if err != nil {
		return nil, err
	}
	for _, a := range f.list {
		if err := d.Check(a); err != nil {
			return nil, flags.Usagef("--node: %v", err)
		}
		list = append(list, func() (backend.Backend, error) {
			o := remote.Options{
				Name: a.HostPort, Wait: f.wait, Weights: own, Version: Version, Log: n.Log,
				Dial: func(dialing context.Context) (net.Conn, error) {
					dialing, end := context.WithCancel(dialing)
					defer end()
					defer context.AfterFunc(ctx, end)()
					c, err := d.Dial(dialing, a)
					switch {
					case err == nil:
						return c, nil
					case ctx.Err() != nil:
						err = over{ctx.Err()}
					}
					return nil, err // and no connection that is a nil pointer
				},
			}
			if n.Patient {
				o.OpenWait = f.wait
			}
			return remote.Open(context.WithoutCancel(ctx), o)
		})
	}
	return list, nil
}
