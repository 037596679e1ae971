package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// PeerResult is one line of a peer's benchmark: llama-bench's, of llama.cpp.
type PeerResult struct {
	Prompt   int     // tokens of prefill, 0 if it is about generation
	Generate int     // tokens generated, 0 if it is about prefill
	Depth    int     // tokens of context before that
	Threads  int     // 0: it does not say
	Rate     float64 // tokens per second
	Build    string  // "": it does not say
}

// peerLine is what llama-bench writes with -o json or jsonl, as far as it matters here.
type peerLine struct {
	Build    string  `json:"build_commit"`
	Threads  int     `json:"n_threads"`
	Prompt   int     `json:"n_prompt"`
	Generate int     `json:"n_gen"`
	Depth    int     `json:"n_depth"`
	Rate     float64 `json:"avg_ts"`
}

// ParsePeer reads what llama-bench prints: a JSON array, JSON lines, or its table. What a
// peer prints is not trusted: every number is checked.
func ParsePeer(text []byte) ([]PeerResult, error) {
	var results []PeerResult
	var err error
	switch text = bytes.TrimSpace(text); {
	case len(text) == 0:
		return nil, errors.New("bench: the peer printed nothing")
	case text[0] == '[':
		var lines []peerLine
		if err := json.Unmarshal(text, &lines); err != nil {
			return nil, fmt.Errorf("bench: the peer's JSON: %w", err)
		}
		for _, l := range lines {
			results = append(results, l.result())
		}
	case text[0] == '{':
		d := json.NewDecoder(bytes.NewReader(text))
		for d.More() {
			var l peerLine
			if err := d.Decode(&l); err != nil {
				return nil, fmt.Errorf("bench: the peer's JSON lines: %w", err)
			}
			results = append(results, l.result())
		}
	default:
		results, err = parseTable(string(text))
	}
	if err == nil && len(results) == 0 {
		err = errors.New("bench: the peer printed no results")
	}
	for _, r := range results {
		if !(r.Rate > 0) || math.IsInf(r.Rate, 0) || r.Prompt < 0 || r.Generate < 0 || r.Depth < 0 || r.Threads < 0 {
			return nil, fmt.Errorf("bench: the peer's result is not plausible: %+v", r)
		}
	}
	return results, err
}

func (l peerLine) result() PeerResult {
	return PeerResult{Prompt: l.Prompt, Generate: l.Generate, Depth: l.Depth, Threads: l.Threads, Rate: l.Rate, Build: plain(l.Build)}
}

// peerTest is a test's name in the table: pp512, tg128, pp512+tg128, each perhaps after a
// context.
var peerTest = regexp.MustCompile(`^(?:pp(\d{1,9}))?\+?(?:tg(\d{1,9}))?(?: @ d(\d{1,9}))?$`)

// parseTable reads a Markdown table by its headings, of which test and t/s are needed.
func parseTable(text string) ([]PeerResult, error) {
	var headings []string
	var results []PeerResult
	build := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if b, ok := strings.CutPrefix(line, "build:"); ok {
			build, _, _ = strings.Cut(strings.TrimSpace(b), " ")
		}
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case headings == nil:
			headings = cells
		case strings.Trim(cells[0], "-: ") == "":
			// the line below the headings
		default:
			r, err := parseRow(headings, cells)
			if err != nil {
				return nil, err
			}
			results = append(results, r)
		}
	}
	for i := range results {
		results[i].Build = plain(build)
	}
	return results, nil
}

func parseRow(headings, cells []string) (PeerResult, error) {
	var r PeerResult
	if len(cells) != len(headings) {
		return r, fmt.Errorf("bench: the peer's table has a row of %d cells under %d headings", len(cells), len(headings))
	}
	seen := 0
	for i, head := range headings {
		var err error
		switch head {
		case "test":
			m := peerTest.FindStringSubmatch(cells[i])
			if m == nil || m[1] == "" && m[2] == "" {
				return r, fmt.Errorf("bench: the peer's table has a test %q, want a name such as pp512 or tg128", cells[i])
			}
			for j, n := range []*int{&r.Prompt, &r.Generate, &r.Depth} {
				*n, _ = strconv.Atoi(m[j+1]) // digits or nothing
			}
			seen++
		case "t/s":
			rate, _, _ := strings.Cut(cells[i], "±")
			r.Rate, err = strconv.ParseFloat(strings.TrimSpace(rate), 64)
			seen++
		case "threads":
			r.Threads, err = strconv.Atoi(cells[i])
		}
		if err != nil {
			return r, fmt.Errorf("bench: the peer's table, under %s: %w", head, err)
		}
	}
	if seen != 2 {
		return r, errors.New("bench: the peer's table has no columns test and t/s")
	}
	return r, nil
}

// Peer is a peer's benchmark program: its name and first arguments. No shell is involved.
type Peer []string

// peerOutput is the maximum that a peer may print, in bytes.
const peerOutput = 4 << 20

// Run has the peer measure a model file once. memory is what it had resident at most, in bytes, 0
// where the system does not tell.
func (p Peer) Run(ctx context.Context, o *CompareOptions) (results []PeerResult, memory int64, err error) {
	args := slices.Concat(p[1:], []string{
		"-m", o.File, "-t", strconv.Itoa(o.Threads), "-p", list(o.Prompts), "-n", list(o.Generates), "-r", "1", "-o", "jsonl",
	})
	if slices.Max(o.Depths) > 0 {
		args = append(args, "-d", list(o.Depths))
	}
	cmd := exec.CommandContext(ctx, p[0], args...)
	cmd.WaitDelay = 2 * time.Second // for pipes that its children keep open
	var out, faults limited
	cmd.Stdout, cmd.Stderr = &out, &faults
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		said := strings.TrimSpace(plain(faults.String()))
		return nil, 0, fmt.Errorf("bench: peer %s: %w: %s", p[0], err, said[max(len(said)-maxFault, 0):])
	}
	if out.full {
		return nil, 0, fmt.Errorf("bench: peer %s: its output has more than %d bytes", p[0], peerOutput)
	}
	results, err = ParsePeer(out.Bytes())
	return results, residentMemory(cmd.ProcessState.SysUsage()), err
}

// list is numbers with commas between them, 0 if there are none.
func list(numbers []int) string {
	if len(numbers) == 0 {
		return "0"
	}
	parts := make([]string, len(numbers))
	for i, n := range numbers {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ",")
}

// limited keeps the first peerOutput bytes that are written to it.
type limited struct {
	bytes.Buffer
	full bool
}

func (l *limited) Write(b []byte) (int, error) {
	space := peerOutput - l.Len()
	l.full = l.full || len(b) > space
	_, _ = l.Buffer.Write(b[:min(len(b), space)]) // a buffer takes everything
	return len(b), nil
}
