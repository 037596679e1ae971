package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/bench"
)

// serveBench is a run of the command bench serve.
type serveBench struct {
	url, model, keyEnv string
	remote             bool

	classes           []string
	concurrency       []int
	rates             []float64
	requests, repeats flags.Setting[int]
	maxTokens         flags.Setting[int]
	temp              flags.Setting[float64]
	limit             time.Duration
	first, token      time.Duration
	out               *benchOutput
}

// Defaults of a load.
const (
	serveRequests = 16
	serveRepeats  = 2
	serveTokens   = 128
)

func newBenchServeCommand() *cobra.Command {
	f := &serveBench{
		url: "http://127.0.0.1:8080/v1", keyEnv: flags.KeyVariable, classes: bench.Classes(), concurrency: []int{1, 2, 4, 8},
		requests: flags.Whole(1, 1<<20), repeats: flags.Whole(1, 1000), maxTokens: flags.Whole(1, 1<<20), temp: flags.Number(0, 100), limit: 5 * time.Minute, out: &benchOutput{},
	}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Load an OpenAI-compatible server and measure latency and throughput",
		Long: `Serve sends chat requests to any OpenAI-compatible server. It measures time to first token, time per
output token, tokens and answers per second, and the share of answers that meet the goals.

--concurrency keeps a number of requests running. --rates sends requests at an average rate per
second, independent of the server's speed (a Poisson process with the same times in every run).

Only servers on this machine are loaded unless --allow-remote is set. If the environment variable of
--api-key-env is set, its value is sent as the key.

Exit status: 0 success, 1 error or failed requests, 2 invalid command line, 130 interrupted by Ctrl-C.`,
		Example: `  foretoken bench serve --url http://127.0.0.1:8080/v1 --model tiny
  foretoken bench serve --url http://127.0.0.1:11434/v1 --model qwen3.5:4b --concurrency 1,8 --goal-ttft 2s
  foretoken bench serve --model tiny --rates 1,2,4 --requests 64 --html report.html`,
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	server := flags.NewGroup("Server")
	fs := server.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.url, "url", f.url, "base `URL` of the API, ending in /v1")
	fs.StringVar(&f.model, "model", "", "model `NAME` as listed by the server")
	fs.StringVar(&f.keyEnv, "api-key-env", f.keyEnv, "environment `VARIABLE` with the API key")
	fs.BoolVar(&f.remote, "allow-remote", false, "allow servers on other machines")
	flags.AddGroups(cmd, server, f.what(), f.out.group())
	flags.Must(cmd.RegisterFlagCompletionFunc("classes", cobra.FixedCompletions(bench.Classes(), cobra.ShellCompDirectiveNoFileComp)))
	f.out.complete(cmd)
	return cmd
}

func (f *serveBench) what() flags.Group {
	g := flags.NewGroup("Measurements")
	fs := g.Flags()
	fs.SortFlags = false
	fs.IntSliceVar(&f.concurrency, "concurrency", f.concurrency, "`LIST` of numbers of concurrent requests, one load each (default with --rates: none)")
	fs.Float64SliceVar(&f.rates, "rates", nil, "`LIST` of requests per second, one load for each")
	fs.Var(&f.requests, "requests", fmt.Sprintf("requests per load and repetition (default %d)", serveRequests))
	fs.Var(&f.repeats, "repeats", fmt.Sprintf("repetitions of all loads (default %d)", serveRepeats))
	fs.Var(&f.maxTokens, "max-tokens", fmt.Sprintf("maximum tokens per answer (default %d)", serveTokens))
	fs.Var(&f.temp, "temp", "temperature (default 0)")
	fs.StringSliceVar(&f.classes, "classes", f.classes, "`LIST` of prompt classes")
	fs.DurationVar(&f.limit, "limit", f.limit, "timeout of one request")
	fs.DurationVar(&f.first, "goal-ttft", 0, "goal for the time to first token (default: none)")
	fs.DurationVar(&f.token, "goal-tpot", 0, "goal for the mean time per output token (default: none)")
	return g
}

func (f *serveBench) run(cmd *cobra.Command) error {
	if len(f.rates) > 0 && !cmd.Flags().Changed("concurrency") {
		f.concurrency = nil
	}
	if err := f.validate(); err != nil {
		return err
	}
	if err := f.out.prepare(); err != nil {
		return err
	}
	c := console.New(cmd)
	ctx, stop := console.Interruptible(cmd.Context())
	defer stop()
	client := &bench.Client{URL: f.url, Model: f.model, Key: os.Getenv(f.keyEnv), HTTP: f.client()}
	r, err := bench.Serve(ctx, client, bench.ServeOptions{
		Classes: f.classes, Concurrency: f.concurrency, Rates: f.rates, Requests: f.requests.Or(serveRequests), Repeats: f.repeats.Or(serveRepeats),
		MaxTokens: f.maxTokens.Or(serveTokens), Temperature: f.temp.Or(0), Limit: f.limit, TTFTGoal: f.first, TPOTGoal: f.token,
		Progress: c.Step,
	})
	switch {
	case errors.Is(err, context.Canceled) || ctx.Err() != nil:
		return console.ErrInterrupted
	case err != nil:
		return fmt.Errorf("%w: check that the server runs, and that --url (such as http://127.0.0.1:8080/v1) and --model are right", err)
	}
	r.Load = machineLoad()
	if err := f.out.write(c, r); err != nil {
		return err
	}
	if n := r.Failed(); n > 0 {
		return fmt.Errorf("%s failed: see the errors above", console.Counted(n, "request"))
	}
	return nil
}

// client is one for many requests at a time. It follows no redirection: that could lead to a
// machine that was not named, with the key.
func (f *serveBench) client() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 1024, Proxy: http.ProxyFromEnvironment},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (f *serveBench) validate() error {
	u, err := url.Parse(f.url)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return flags.Usagef("--url %s: want an address such as http://127.0.0.1:8080/v1", f.url)
	}
	if !f.remote && !flags.Loopback(u.Hostname()) {
		return flags.Usagef("--url %s is not on this machine: load only your own servers; --allow-remote allows it", f.url)
	}
	if f.model == "" {
		return flags.Usagef("--model is missing: give the server's name of the model; %s/models lists the names", strings.TrimSuffix(f.url, "/"))
	}
	for _, n := range f.concurrency {
		if n < 1 || n > 1024 {
			return flags.Usagef("--concurrency %d: want numbers from 1 to 1024", n)
		}
	}
	for _, r := range f.rates {
		if !(r > 0 && r <= 1000) {
			return flags.Usagef("--rates %v: want numbers above 0, at most 1000", r)
		}
	}
	for _, class := range f.classes {
		if !slices.Contains(bench.Classes(), class) {
			return flags.Usagef("--classes %s: want some of %s", class, strings.Join(bench.Classes(), ", "))
		}
	}
	switch {
	case len(f.classes) == 0:
		return flags.Usagef("--classes: no prompts are selected")
	case f.limit <= 0 || f.first < 0 || f.token < 0:
		return flags.Usagef("--limit, --goal-ttft and --goal-tpot: want times above 0, such as 2s")
	}
	return nil
}
