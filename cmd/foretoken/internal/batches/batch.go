// Package batches has the command batch, which sends files of requests to a server or runs them here, and the
// flags that say where a server keeps batches.
package batches

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	neturl "net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/batch"
	"github.com/foretoken/foretoken/internal/server"
)

// Batch is the command.
func Batch() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "batch",
		Short: "Run a file of requests, or manage the batches of a server",
		Args:  flags.KnownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBatchRunCommand(), newBatchServerCommand("list", "List the batches of a server", "GET", ""), newBatchServerCommand("show", "Show a batch of a server", "GET", ""), newBatchServerCommand("cancel", "Cancel a batch of a server; finished lines are delivered", "POST", "/cancel"))
	return cmd
}

// batchRun is a run of the command batch run.
type batchRun struct {
	model    *load.Flags
	endpoint string
	lines    flags.Setting[int]
}

func newBatchRunCommand() *cobra.Command {
	f := &batchRun{model: load.NewFlags(), lines: flags.Whole(1, 1024)}
	cmd := &cobra.Command{
		Use:   "run IN.jsonl OUT.jsonl",
		Short: "Answer a file of requests without a server",
		Long: `Run answers every line of a file of requests, like a batch of a server, and writes the answers in the
order of the lines. Lines without an answer go to OUT.errors.jsonl. Finished lines are kept in the
folder OUT.jsonl.partial: after Ctrl-C or a crash, the same command continues from there.

Exit status: 0 success, 1 error or lines without an answer, 2 invalid command line, 130 interrupted by
Ctrl-C.`,
		Example: `  foretoken batch run in.jsonl out.jsonl
  foretoken batch run in.jsonl out.jsonl --model ~/models/Qwen3.5-4B --quantize 4`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return flags.Usagef("batch run needs two arguments, a file of requests and a file for the answers, got %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0], args[1]) },
	}
	g := f.model.Group()
	own := flags.NewGroup("Batch")
	own.Flags().StringVar(&f.endpoint, "endpoint", "", "required `PATH` of all lines: "+strings.Join(batch.Endpoints, ", ")+" (default: that of the first line)")
	own.Flags().Var(&f.lines, "batch-lines", "maximum number of concurrent lines (default 16)")
	flags.AddGroups(cmd, g, own, f.model.Draft.Group(""))
	load.Complete(cmd)
	flags.Must(cmd.RegisterFlagCompletionFunc("endpoint", cobra.FixedCompletions(batch.Endpoints, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// read identifies a file of requests and its endpoint, which must equal --endpoint if
// that is given.
func (f *batchRun) read(path string) (id string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	h := sha256.New()
	endpoint, line, err := batch.EndpointOf(io.TeeReader(file, h))
	if err == nil {
		_, err = io.Copy(h, file) // the rest of a file that is too long
	}
	if err != nil {
		return "", err
	}
	switch {
	case endpoint == "": // an error of the first line will say so
		f.endpoint = cmp.Or(f.endpoint, batch.Endpoints[0])
	case !slices.Contains(batch.Endpoints, endpoint):
		return "", fmt.Errorf("%s: line %d is for %.80q: want one of %s", path, line, endpoint, strings.Join(batch.Endpoints, ", "))
	case f.endpoint != "" && f.endpoint != endpoint:
		return "", flags.Usagef("--endpoint %s: line %d of %s is for %s: leave out --endpoint, or choose another file", f.endpoint, line, path, endpoint)
	default:
		f.endpoint = endpoint
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (f *batchRun) run(cmd *cobra.Command, in, out string) (err error) {
	c := console.New(cmd)
	partial := out + ".partial"
	if err := f.check(out, partial); err != nil {
		return err
	}
	id, err := f.read(in)
	if err != nil {
		return err
	}
	path, err := load.Resolve(f.model.Model)
	if err != nil {
		return err
	}
	folder, err := batch.OpenFolder(partial)
	if errors.Is(err, batch.ErrLocked) {
		return fmt.Errorf("%w: another process runs this batch; wait for its end, or choose another file for the answers", err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	o := f.model.Options()
	if err := f.model.Draft.Settle(&o.Speculation, f.model.Model, path, f.model.Draft.File()); err != nil {
		return err
	}
	o.KVMemory, o.MaxBatch, o.PrefixCache = -1, f.lines.Or(0), foretoken.PrefixCache{}
	load.AddSlot(o.Threads)
	name, level := load.ServedName(f.model.Model, path), slog.LevelWarn
	if f.model.Verbose {
		level = slog.LevelInfo
	}
	log := slog.New(slog.NewTextHandler(c.Err, &slog.HandlerOptions{Level: level}))
	ctx, stop := console.Interruptible(cmd.Context())
	defer stop()
	if err := f.model.SetNodes(ctx, &o, path, load.Nodes{Log: log}); err != nil {
		return err
	}
	s, err := server.New(server.Options{
		Models: []server.Model{{Name: name, Path: path, Options: o}}, Log: log,
		Batches: &server.Batches{Store: folder, Queue: batch.NewMemory(), Records: filepath.Join(partial, "weights")},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Shutdown(context.Background())) }()
	fingerprint, err := s.Fingerprint(ctx, name, filepath.Join(partial, "weights"))
	if err != nil {
		return load.Explain(err)
	}
	b, again, err := f.begin(ctx, s.Coordinator(), in, partial, id, fingerprint)
	if err == nil {
		b, err = f.follow(ctx, c, s, b.ID, again)
	}
	if errors.Is(err, console.ErrInterrupted) && b.Counts.Total > 0 {
		c.Remark(fmt.Sprintf("%d of %s done and kept in %s: run the same command to continue", b.Counts.Completed+b.Counts.Failed, console.Counted(b.Counts.Total, "line"), partial))
	}
	if b.Status == batch.Failed { // there is nothing to go on with
		return errors.Join(err, os.RemoveAll(partial))
	}
	if err != nil {
		return err
	}
	return f.deliver(ctx, s.Coordinator(), b, out, partial)
}

// errorsOf is where lines go that have no answer.
func errorsOf(out string) string { return strings.TrimSuffix(out, ".jsonl") + ".errors.jsonl" }

// check refuses impossible combinations, before anything is written.
func (f *batchRun) check(out, partial string) error {
	if f.endpoint != "" && !slices.Contains(batch.Endpoints, f.endpoint) {
		return flags.Usagef("--endpoint %s: want one of %s", f.endpoint, strings.Join(batch.Endpoints, ", "))
	}
	if err := f.model.Draft.Validate(); err != nil {
		return err
	}
	files := []string{out}
	if _, err := os.Lstat(partial); err != nil { // else both may be of a run that did not end
		files = append(files, errorsOf(out))
	}
	for _, file := range files {
		if _, err := os.Lstat(file); err == nil {
			return flags.Usagef("%s exists already: choose another file for the answers, or remove it", file)
		}
	}
	return nil
}

// begin submits the file, or finds the batch of a former run, which is the case if again.
func (f *batchRun) begin(ctx context.Context, c *batch.Coordinator, in, partial, id, fingerprint string) (b batch.Batch, again bool, err error) {
	facts := map[string]string{"input": id, "model": fingerprint, "endpoint": f.endpoint}
	list, _, err := c.Batches(ctx, "", batch.Page{})
	if err != nil {
		return b, false, err
	}
	if len(list) > 0 {
		for name, fact := range facts {
			if list[0].Metadata[name] != fact {
				return list[0], true, flags.Usagef("%s belongs to a run with another %s: choose another file for the answers, or remove it", partial, name)
			}
		}
		return list[0], true, nil
	}
	file, err := os.Open(in)
	if err != nil {
		return b, false, err
	}
	defer func() { _ = file.Close() }() // read only
	input, err := c.CreateFile(ctx, "", filepath.Base(in), "batch", 0, file)
	if err != nil {
		return b, false, fmt.Errorf("%s: %w", in, err)
	}
	b, err = c.Submit(ctx, batch.Submission{ID: "batch_" + id[:32], Input: input.ID, Endpoint: f.endpoint, Metadata: facts, Window: 30 * 24 * time.Hour})
	return b, false, err
}

// follow runs the batch to its end and shows its progress; again reports that a former run had begun it.
func (f *batchRun) follow(ctx context.Context, c *console.Console, s *server.Server, id string, again bool) (b batch.Batch, err error) {
	running, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.RunBatches(running) }()
	defer func() {
		end()
		if failed := <-ended; failed != nil {
			err = errors.Join(err, failed)
		}
	}()
	start := time.Now()
	var bar *progressbar.ProgressBar
	t := time.NewTicker(200 * time.Millisecond)
	defer t.Stop()
	for {
		if b, err = s.Coordinator().Batch(context.WithoutCancel(ctx), "", id); err != nil {
			return b, err
		}
		if n := b.Counts; c.ErrTerminal && n.Total > 0 {
			if bar == nil {
				bar = progressbar.NewOptions(n.Total, progressbar.OptionSetWriter(c.Err), progressbar.OptionSetDescription("lines"), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())
			}
			_ = bar.Set(n.Completed + n.Failed) // a bar that cannot be drawn is no reason to stop
		}
		if b.Status.Over() {
			break
		}
		if ctx.Err() != nil {
			return b, console.ErrInterrupted
		}
		select {
		case <-ctx.Done():
		case failed := <-ended: // it has no reason to end before the batch, but one
			ended <- nil
			return b, cmp.Or(failed, errors.New("the batch worker stopped before the batch ended"))
		case <-t.C:
		}
	}
	if b.Errors != nil {
		return b, faultsError(b.Errors.Data)
	}
	if u := b.Usage; u != nil {
		line := fmt.Sprintf("%s, %d failed; %d prompt tokens (%d cached), %d answer tokens", console.Counted(b.Counts.Total, "line"), b.Counts.Failed, u.Input, u.InputDetails.Cached, u.Output)
		if !again { // else some are of a former run
			line += fmt.Sprintf(", %.1f per second", float64(u.Output)/time.Since(start).Seconds())
		}
		c.Remark(line)
	}
	return b, nil
}

// faultsError is the error of a file that is not a batch: the first faults, and the number of the rest.
func faultsError(list []batch.Fault) (all error) {
	const shown = 5
	for _, e := range list[:min(shown, len(list))] {
		all = errors.Join(all, errors.New(faultText(e)))
	}
	switch more := len(list) - shown; {
	case len(list) == batch.MaxFaults: // the limit of reported faults
		all = errors.Join(all, fmt.Errorf("and at least %d more errors", more))
	case more > 0:
		all = errors.Join(all, fmt.Errorf("and %s", console.Counted(more, "more error")))
	}
	return all
}

// faultText is the error of a file, for people.
func faultText(e batch.Fault) string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Message)
}

// deliver writes the answers last, and removes temporary files.
func (f *batchRun) deliver(ctx context.Context, c *batch.Coordinator, b batch.Batch, out, partial string) error {
	temp := filepath.Join(partial, "answers")
	if b.ErrorFile != "" {
		if err := writeStored(ctx, c, b.ErrorFile, errorsOf(out), temp); err != nil {
			return err
		}
	}
	if err := writeStored(ctx, c, b.Output, out, temp); err != nil {
		return err
	}
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	if b.Counts.Failed > 0 {
		return fmt.Errorf("%s without an answer: see %s", console.Counted(b.Counts.Failed, "line"), errorsOf(out))
	}
	return nil
}

// writeStored writes a file of the store, whole or not at all; temp is on the same disk.
func writeStored(ctx context.Context, c *batch.Coordinator, id, path, temp string) error {
	to, err := os.Create(temp)
	if err != nil {
		return err
	}
	if id != "" {
		_, content, e := c.Content(ctx, "", id)
		if err = e; err == nil {
			_, err = io.Copy(to, content)
			err = errors.Join(err, content.Close())
		}
	}
	if err = errors.Join(err, to.Sync(), to.Close()); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// newBatchServerCommand is a command that asks a server.
func newBatchServerCommand(name, short, method, suffix string) *cobra.Command {
	url, key := "http://127.0.0.1:8080/v1", flags.KeyVariable
	use := name
	if name != "list" {
		use += " ID"
	}
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: func(_ *cobra.Command, args []string) error {
			if want := strings.Count(use, " "); len(args) != want {
				return flags.Usagef("batch %s: %d arguments, want %d", name, len(args), want)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			path := strings.TrimSuffix(url, "/") + "/batches"
			if len(args) == 0 {
				return listBatches(cmd, path, os.Getenv(key))
			}
			got, err := askBatches(cmd.Context(), method, path+"/"+neturl.PathEscape(args[0])+suffix, os.Getenv(key))
			if err == nil {
				showBatch(cmd, &got.Batch, true)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&url, "url", url, "base `URL` of the API, ending in /v1")
	cmd.Flags().StringVar(&key, "api-key-env", key, "environment `VARIABLE` with the API key")
	return cmd
}

// listBatches prints the batches of a server, one per line. A server returns them in pages.
func listBatches(cmd *cobra.Command, url, key string) error {
	for after := ""; ; {
		got, err := askBatches(cmd.Context(), http.MethodGet, url+"?limit=100&after="+neturl.QueryEscape(after), key)
		if err != nil {
			return err
		}
		for i := range got.Data {
			showBatch(cmd, &got.Data[i], false)
		}
		if n := len(got.Data); got.More && n > 0 && got.Data[n-1].ID != after {
			after = got.Data[n-1].ID
			continue
		}
		return nil
	}
}

// showBatch prints a batch, with the errors of its file if faults.
func showBatch(cmd *cobra.Command, b *batch.Batch, faults bool) {
	console.Tell(cmd.OutOrStdout(), fmt.Sprintf("%s  %-11s  %d/%d done, %d failed  %s\n", console.Printable(b.ID), console.Printable(string(b.Status)), b.Counts.Completed, b.Counts.Total, b.Counts.Failed, console.Printable(b.Output)))
	if b.Errors != nil && faults {
		for _, e := range b.Errors.Data {
			console.Tell(cmd.OutOrStdout(), "  "+console.Printable(faultText(e))+"\n")
		}
	}
}

// batchAnswer is a server's answer about one or several batches.
type batchAnswer struct {
	batch.Batch
	Data  []batch.Batch `json:"data"`
	More  bool          `json:"has_more"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// askBatches asks a server about batches.
func askBatches(ctx context.Context, method, url, key string) (*batchAnswer, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, flags.Usagef("--url: %v", err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%w: check that the server runs and that --url is its address, such as http://127.0.0.1:8080/v1", err)
	}
	var got batchAnswer
	err = json.NewDecoder(io.LimitReader(a.Body, 64<<20)).Decode(&got)
	if err = errors.Join(err, a.Body.Close()); err != nil {
		return nil, fmt.Errorf("%s: the answer is not from a server with batches: %w", url, err)
	}
	switch {
	case got.Error != nil:
		return nil, errors.New(console.Printable(got.Error.Message))
	case a.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: the answer is not from a server with batches: status %s", url, console.Printable(a.Status))
	}
	return &got, nil
}
