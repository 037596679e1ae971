package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/batches"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/server"
)

// Defaults of flags.
const (
	defaultHost  = "127.0.0.1"
	DefaultPort  = 8080
	defaultQueue = 256
	defaultDrain = 30 * time.Second
)

// drafterOfSeveral is added to the description of --drafter.
const drafterOfSeveral = "; MODEL=DRAFTER for one of several models; may be repeated"

// serveFlags are those of the command serve.
type serveFlags struct {
	model                   *load.Flags
	models, aliases, pinned flags.Texts
	preload                 bool
	modelsMemory            flags.Setting[int64]
	keepAlive               time.Duration

	kvMemory, cacheDisk flags.Setting[int64]
	batch, queue, round flags.Setting[int]
	noCache, shareCache bool
	cacheDirs           flags.Texts
	cacheUses           flags.Setting[int]

	metricsAddr                string
	kvEvents, kvReplay, kvName string

	stateDir  string
	noBatches bool
	lines     flags.Setting[int]
	queueing  batches.QueueFlags

	host                  string
	port                  flags.Setting[int]
	apiKey                string
	insecure              bool
	origins, imageHosts   flags.Texts
	tlsCert, tlsKey       string
	maxBody               flags.Setting[int64]
	strictFields          bool
	headers, bodies, idle time.Duration
	connections, perKey   flags.Setting[int]
	drainTimeout          time.Duration
	endWaits              context.CancelFunc // for nodes
	log                   load.LogFlags
}

func newServeFlags() *serveFlags {
	return &serveFlags{
		model: load.NewFlags(), modelsMemory: flags.ByteCount(), kvMemory: flags.ByteCount(), cacheDisk: flags.ByteCount(), maxBody: flags.ByteCount(),
		lines: flags.Whole(1, 1024),
		batch: flags.Whole(1, 1024), queue: flags.Whole(0, math.MaxInt32), round: flags.Whole(1, 60_000),
		cacheUses: flags.Whole(1, math.MaxInt32), port: flags.Whole(0, 65535), connections: flags.Whole(1, math.MaxInt32), perKey: flags.Whole(1, math.MaxInt32),
		log: load.NewLogFlags(),
	}
}

func (f *serveFlags) groups() []flags.Group {
	return []flags.Group{f.modelGroup(), f.memoryGroup(), f.batchGroup(), f.networkGroup(), f.gatewayGroup(), f.model.Draft.Group(drafterOfSeveral)}
}

func (f *serveFlags) modelGroup() flags.Group {
	g := flags.NewGroup("Models")
	fs := g.Flags()
	fs.SortFlags = false
	fs.Var(&f.models, "model", "checkpoint `DIR`, GGUF file, pulled model (ORG/NAME), or "+load.Embedded+" for the embedded model; may be repeated; the first is the default of requests (default "+load.Embedded+")")
	fs.Var(&f.aliases, "served-model-name", "alias of the first model, or `ALIAS=MODEL`; may be repeated")
	fs.BoolVar(&f.preload, "preload", false, "load all models at startup, not only the first")
	fs.Var(&f.pinned, "pin", "`MODEL` that is never unloaded; may be repeated")
	fs.Var(&f.modelsMemory, "models-memory", "maximum memory for the weights of all models; the least recently used model is unloaded (default: unlimited)")
	fs.DurationVar(&f.keepAlive, "keep-alive", 0, "time a model stays loaded after its last use; 0: until its memory is needed")
	f.model.AddComputing(g)
	f.model.Vision.Add(g)
	return g
}

func (f *serveFlags) memoryGroup() flags.Group {
	g := flags.NewGroup("Sequences (of each model)")
	fs := g.Flags()
	fs.SortFlags = false
	fs.Var(&f.kvMemory, "kv-memory", "memory for the KV cache of all sequences and the prefix cache, at least that of one sequence of full context (default: half of the free memory when the model is loaded, at most what --max-batch sequences of full context need)")
	f.model.KV.Add(g, load.KVDefault)
	fs.Var(&f.batch, "max-batch", fmt.Sprintf("maximum batch size in sequences (default %d)", foretoken.DefaultBatch))
	fs.Var(&f.queue, "max-queue", fmt.Sprintf("maximum number of waiting requests; further requests get status 429 unless their key has less than its share; 0: unlimited (default %d)", defaultQueue))
	fs.Var(&f.round, "max-round-ms", "maximum milliseconds between tokens of a running sequence while another prefills (default: 1.5 times the time without prefill)")
	fs.BoolVar(&f.noCache, "no-prefix-cache", false, "disable the prefix cache")
	fs.BoolVar(&f.shareCache, "share-prefix-cache", false, "share the prefix cache between API keys; response times then reveal the prefixes of other keys")
	fs.Var(&f.cacheDirs, "prefix-cache-dir", "also store the prefix cache in `DIR`, for the next start, or in s3://BUCKET/PREFIX, for all servers with this bucket; may be given once for each")
	fs.Var(&f.cacheDisk, "prefix-cache-disk", "maximum size of the prefix cache folder (default 10GiB)")
	fs.Var(&f.cacheUses, "prefix-cache-uses", "number of uses after which a prefix is written to the bucket (default 2)")
	return g
}

func (f *serveFlags) networkGroup() flags.Group {
	g := flags.NewGroup("Network")
	fs := g.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.host, "host", defaultHost, "`ADDRESS` to listen on; 0.0.0.0 listens on all interfaces and requires --api-key")
	fs.Var(&f.port, "port", fmt.Sprintf("port to listen on; 0: any free port (default %d)", DefaultPort))
	fs.StringVar(&f.apiKey, "api-key", "", "`KEY` that clients must send, or @FILE with one per line (default: the variable "+flags.KeyVariable+", which other users of the machine cannot see)")
	fs.BoolVar(&f.insecure, "insecure", false, "allow --host addresses other than this machine without a key")
	fs.Var(&f.origins, "cors", "`ORIGIN` of web pages that may use the server, such as https://example.com, or *; may be repeated")
	fs.StringVar(&f.tlsCert, "tls-cert", "", "`FILE` with the certificate, for HTTPS")
	fs.StringVar(&f.tlsKey, "tls-key", "", "`FILE` with the private key of the certificate")
	fs.Var(&f.imageHosts, "allow-image-urls", "`HOST` to fetch images from, *.DOMAIN or *; HOST:PORT or an IP address may be on a private network; may be repeated (default: none; images must be inlined as data: URLs)")
	fs.Var(&f.maxBody, "max-body", "maximum size of a request body, including base64 images (default 64MiB)")
	fs.BoolVar(&f.strictFields, "strict-fields", false, "refuse requests with unknown or unsupported fields instead of listing them in the header Foretoken-Ignored")
	fs.DurationVar(&f.headers, "read-header-timeout", server.DefaultHeaderTimeout, "maximum time to receive the header of a request")
	fs.DurationVar(&f.bodies, "read-body-timeout", server.DefaultBodyTimeout, "maximum time to receive the body of a request")
	fs.DurationVar(&f.idle, "idle-timeout", server.DefaultIdleTimeout, "maximum idle time of a connection between requests")
	fs.Var(&f.connections, "max-connections", "maximum number of open connections; further connections wait (default: unlimited)")
	fs.Var(&f.perKey, "per-key-concurrency", "maximum concurrent requests of one key, or without keys of one address (default: unlimited)")
	fs.DurationVar(&f.drainTimeout, "drain-timeout", defaultDrain, "maximum time to finish running requests at shutdown")
	f.log.Add(g)
	return g
}

// complete adds shell completion.
func (f *serveFlags) complete(cmd *cobra.Command) {
	f.log.Complete(cmd)
	flags.Must(cmd.RegisterFlagCompletionFunc("host", cobra.FixedCompletions([]cobra.Completion{defaultHost, "0.0.0.0", "::"}, cobra.ShellCompDirectiveNoFileComp)))
	flags.Must(cmd.MarkFlagFilename("tls-cert", "pem", "crt"))
	flags.Must(cmd.MarkFlagFilename("tls-key", "pem", "key"))
	flags.Must(cmd.MarkFlagDirname("prefix-cache-dir"))
	flags.Must(cmd.MarkFlagDirname("state-dir"))
	f.queueing.Complete(cmd)
}

// modelOptions are the options of all models.
func (f *serveFlags) modelOptions() foretoken.Options {
	o := f.model.Options()
	o.KVMemory = f.kvMemory.Or(-1)
	o.MaxBatch, o.MaxQueue = f.batch.Or(0), f.queue.Or(defaultQueue)
	o.MaxRound = time.Duration(f.round.Or(0)) * time.Millisecond
	f.setPrefixCache(&o)
	return o
}

// options are the server's.
func (f *serveFlags) options(ctx context.Context, log *slog.Logger) (o server.Options, err error) {
	if err := f.validate(); err != nil {
		return o, err
	}
	o = server.Options{
		ModelsMemory: f.modelsMemory.Or(0), KeepAlive: f.keepAlive, Origins: f.origins, ImageHosts: f.imageHosts, MaxBody: f.maxBody.Or(0),
		HeaderTimeout: f.headers, BodyTimeout: f.bodies, IdleTimeout: f.idle, MaxConnections: f.connections.Or(0), PerKey: f.perKey.Or(0),
		StrictFields: f.strictFields, SharePrefixes: f.shareCache,
	}
	if o.Keys, err = f.keys(); err != nil {
		return o, err
	}
	if o.Keys == nil && !f.insecure {
		if !flags.Loopback(f.host) {
			return o, flags.Usagef("--host %s can be reached from other machines: set a key with --api-key or %s, or add --insecure", f.host, flags.KeyVariable)
		}
		o.Local = true
	}
	if f.tlsCert != "" {
		pair, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey)
		if err != nil {
			return o, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", f.tlsCert, f.tlsKey, err)
		}
		o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	if o.Models, o.Aliases, err = f.served(); err != nil {
		return o, err
	}
	if len(f.model.Names()) > 0 && len(o.Models) > 1 {
		return o, flags.Usagef("--node computes layers of one model, but %d models are given: start a server for each", len(o.Models))
	}
	return o, f.model.SetNodes(ctx, &o.Models[0].Options, o.Models[0].Path, load.Nodes{Patient: true, Log: log})
}

// validate refuses flags that make no sense together.
func (f *serveFlags) validate() error {
	if d := min(f.headers, f.bodies, f.idle); d <= 0 {
		return flags.Usagef("--read-header-timeout, --read-body-timeout, --idle-timeout: %v, want a time above 0", d)
	}
	switch {
	case f.keepAlive < 0 || f.drainTimeout < 0:
		return flags.Usagef("--keep-alive, --drain-timeout: %v, want a time, 0 or more", min(f.keepAlive, f.drainTimeout))
	case (f.tlsCert == "") != (f.tlsKey == ""):
		return flags.Usagef("--tls-cert and --tls-key must be set together")
	case f.noCache && f.shareCache:
		return flags.Usagef("--no-prefix-cache and --share-prefix-cache cannot be combined")
	case f.noCache && len(f.cacheDirs) > 0:
		return flags.Usagef("--no-prefix-cache and --prefix-cache-dir cannot be combined")
	case f.noCache && f.kvEvents != "":
		return flags.Usagef("--no-prefix-cache and --kv-events cannot be combined")
	case f.kvEvents == "" && (f.kvReplay != "" || f.kvName != ""):
		return flags.Usagef("--kv-events-replay and --kv-events-name need --kv-events")
	case f.model.Vision.Off && len(f.imageHosts) > 0:
		return flags.Usagef("--allow-image-urls and --no-vision cannot be combined")
	case len(f.models) > 1 && f.drafter("") != "" && f.drafter("") != foretoken.DrafterOff:
		return flags.Usagef("--drafter %s is for one model, but %d models are given: write MODEL=DRAFTER, with MODEL as in --model", f.drafter(""), len(f.models))
	case f.model.Vision.Projector != "" && len(f.models) > 1:
		return flags.Usagef("--mmproj is the vision tower of one model, but %d models are given: put the file beside its model, with a name that begins with mmproj", len(f.models))
	}
	return errors.Join(f.validateCache(), f.model.Draft.Validate(), f.model.Vision.Validate(), f.queueing.Validate())
}

// keys are the given API keys, or nil.
func (f *serveFlags) keys() (*server.Keys, error) {
	text := f.apiKey
	if text == "" {
		text = os.Getenv(flags.KeyVariable)
	}
	if text == "" {
		return nil, nil
	}
	name, isFile := strings.CutPrefix(text, "@")
	if !isFile {
		return server.NewKeys(text)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("--api-key: %w", err)
	}
	var list []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			list = append(list, line)
		}
	}
	if len(list) == 0 {
		return nil, flags.Usagef("--api-key @%s: the file has no key", name)
	}
	return server.NewKeys(list...)
}
