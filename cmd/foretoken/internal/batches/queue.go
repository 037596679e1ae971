package batches

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/batch"
	"github.com/foretoken/foretoken/internal/batch/jetstream"
	"github.com/foretoken/foretoken/internal/server"
)

// QueueFlags say where the lines of batches wait for workers.
type QueueFlags struct {
	Servers, ca, cert, key, credentials string
}

func (f *QueueFlags) Add(g flags.Group) {
	fs := g.Flags()
	fs.StringVar(&f.Servers, "queue", "", "`URL` of the NATS servers that share batches between machines, such as nats://a:4222,nats://b:4222, or tls://…")
	fs.StringVar(&f.ca, "queue-ca", "", "`FILE` with the CA certificates for --queue (default: those of the system)")
	fs.StringVar(&f.cert, "queue-cert", "", "`FILE` with the client certificate for --queue")
	fs.StringVar(&f.key, "queue-key", "", "`FILE` with the private key of the certificate")
	fs.StringVar(&f.credentials, "queue-credentials", "", "`FILE` with the NATS credentials for --queue, as written by nsc")
}

// Complete adds shell completion.
func (f *QueueFlags) Complete(cmd *cobra.Command) {
	flags.Must(cmd.MarkFlagFilename("queue-ca", "pem", "crt"))
	flags.Must(cmd.MarkFlagFilename("queue-cert", "pem", "crt"))
	flags.Must(cmd.MarkFlagFilename("queue-key", "pem", "key"))
	flags.Must(cmd.MarkFlagFilename("queue-credentials", "creds"))
}

// Validate refuses flags that make no sense together.
func (f *QueueFlags) Validate() error {
	if f.Servers == "" && (f.ca != "" || f.cert != "" || f.key != "" || f.credentials != "") {
		return flags.Usagef("--queue-ca, --queue-cert, --queue-key and --queue-credentials need --queue")
	}
	if (f.cert == "") != (f.key == "") {
		return flags.Usagef("--queue-cert and --queue-key must be set together")
	}
	for _, file := range [][2]string{{"queue-ca", f.ca}, {"queue-cert", f.cert}, {"queue-key", f.key}, {"queue-credentials", f.credentials}} {
		if file[1] == "" {
			continue
		}
		if _, err := os.Stat(file[1]); err != nil {
			return fmt.Errorf("--%s: %w", file[0], err)
		}
	}
	return nil
}

// list are the servers, each a URL.
func (f *QueueFlags) list() (servers []string) {
	for s := range strings.SplitSeq(f.Servers, ",") {
		if s = strings.TrimSpace(s); s != "" {
			servers = append(servers, s)
		}
	}
	return servers
}

// Open opens the store and the queue of batches. With --queue both are in the servers, with a cache of files in
// the folder dir. Without it files, batches and results are in dir, and the queue is in memory.
func (f *QueueFlags) Open(ctx context.Context, dir string, log *slog.Logger) (b *server.Batches, end func(), err error) {
	if f.Servers != "" {
		if dir == "" {
			if dir, err = ownTemp(); err != nil {
				return nil, nil, err
			}
		}
		c, store, err := f.dial(ctx, filepath.Join(dir, "queue-files"), log)
		if err != nil {
			return nil, nil, fmt.Errorf("--queue: %w", err)
		}
		return &server.Batches{Store: store, Queue: c.Queue(), QueueAddress: c.Address(), Connected: c.Connected, Records: filepath.Join(dir, "weights")}, c.Close, nil
	}
	if dir == "" { // the working directory is not used as a default
		return nil, nil, errors.New("this user has no folder for state: set --state-dir")
	}
	folder, err := batch.OpenFolder(dir)
	if err != nil {
		return nil, nil, err
	}
	queue, err := batch.OpenMemory(filepath.Join(dir, "attempts"), log)
	if err != nil {
		return nil, nil, errors.Join(err, folder.Close())
	}
	return &server.Batches{Store: folder, Queue: queue, Records: filepath.Join(dir, "weights")}, func() {
		_ = folder.Close() // it only unlocks
	}, nil
}

// dial connects to the servers of --queue.
func (f *QueueFlags) dial(ctx context.Context, cache string, log *slog.Logger) (*jetstream.Conn, batch.Store, error) {
	c, err := jetstream.Dial(ctx, jetstream.Options{Log: log, Servers: f.list(), CA: f.ca, Cert: f.cert, Key: f.key, Credentials: f.credentials})
	if err != nil {
		return nil, nil, err
	}
	s, err := c.Store(ctx, cache, 0)
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return c, s, nil
}

// ownTemp is a folder for temporary files that only this user can access. Its parent is shared, so
// another user may have created the folder before, to read and change files of requests.
func ownTemp() (string, error) {
	dir := filepath.Join(os.TempDir(), "foretoken-"+strconv.Itoa(os.Getuid()))
	err := os.MkdirAll(dir, 0o700)
	info, failed := os.Lstat(dir)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: set a folder for request files with --state-dir", err)
	case failed != nil:
		return "", failed
	case !info.IsDir() || !oursAlone(info):
		return "", fmt.Errorf("%s is writable by other users: remove it, or set another folder with --state-dir", dir)
	}
	return dir, nil
}
