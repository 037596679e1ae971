package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/doctor"
	"github.com/foretoken/foretoken/internal/filetest"
)

// launch starts a process with a folder for state of its own, and returns when its log has a line with text, and that line.
func launch(t testing.TB, state, text string, args ...string) (*program, string) {
	t.Helper()
	p := &program{end: make(chan struct{})}
	p.cmd = exec.CommandContext(t.Context(), os.Args[0], append(args, "--threads", "1")...)
	p.cmd.Env = append(os.Environ(), asProgram+"=1", flags.KeyVariable+"=", "XDG_STATE_HOME="+state, "HF_HUB_CACHE="+state)
	log, err := p.cmd.StderrPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.end
		_ = p.cmd.Wait()
	})
	rest, found := bufio.NewReader(log), ""
	for found == "" {
		line, err := rest.ReadString('\n')
		if _, _ = p.Write([]byte(line)); err != nil {
			close(p.end)
			t.Fatalf("%q ends: %s", args, &p.log)
		}
		if m := regexp.MustCompile(`url=(\S+)|--metrics-addr address=(\S+)`).FindStringSubmatch(line); m != nil {
			p.url = m[1]
			if m[2] != "" {
				p.url = "http://" + m[2]
			}
		}
		if strings.Contains(line, text) {
			found = line
		}
	}
	go func() {
		defer close(p.end)
		_, _ = io.Copy(p, rest) // until it ends
	}()
	return p, found
}

// place is a node that may be started again at the same address.
type place struct {
	state, at, print string
	args             []string
}

// node starts a node.
func (n *place) node(t testing.TB) *program {
	t.Helper()
	if n.state == "" {
		n.state, n.at = t.TempDir(), "127.0.0.1:0"
	}
	args := append([]string{"node", "--listen", n.at, "--memory", "256MB", "--metrics-addr", "127.0.0.1:0"}, n.args...)
	p, line := launch(t, n.state, "listening for a leader", args...)
	m := regexp.MustCompile(`address=(\S+) fingerprint=(\S+)`).FindStringSubmatch(line)
	if n.at, n.print = m[1], m[2]; len(n.print) != 32 {
		t.Errorf("the node has no fingerprint: %s", line)
	}
	return p
}

// lead starts a server with nodes.
func lead(t *testing.T, state string, args ...string) *program {
	t.Helper()
	p, _ := launch(t, state, "msg=ready", append([]string{"serve", "--port", "0", "--kv-memory", "64MiB", "--no-batches"}, args...)...)
	return p
}

// stories asks for several answers at once, whose sampling shows other bits of the logits, and returns them with their
// log-probabilities.
func (p *program) stories(tokens int) []string {
	list := make([]string, 3)
	var all sync.WaitGroup
	for i := range list {
		all.Go(func() {
			body := fmt.Sprintf(`{"prompt": "Once upon a time %d", "max_tokens": %d, "ignore_eos": true, "seed": %d, "temperature": %d, "logprobs": 1}`, i, tokens, i, i%2)
			a, err := http.Post(p.url+"/v1/completions", "application/json", strings.NewReader(body))
			if err != nil {
				list[i] = err.Error()
				return
			}
			data, _ := io.ReadAll(a.Body) // what there is, is compared
			list[i] = string(data)
			if m := regexp.MustCompile(`(?s)"choices":.*?"usage"`).Find(data); m != nil {
				list[i] = string(m)
			}
			_ = a.Body.Close()
		})
	}
	all.Wait()
	return list
}

// within starts stories and calls disturb while they are computed on a node. It returns the answers.
func within(t *testing.T, leader, node *program, tokens int, disturb func()) []string {
	t.Helper()
	before := node.gauge(t, "passes")
	done := make(chan []string, 1)
	go func() { done <- leader.stories(tokens) }()
	for began := time.Now(); node.gauge(t, "passes") < before+10; time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatal("the node computes nothing")
		}
	}
	disturb()
	return <-done
}

// gauge is a metric of a node.
func (p *program) gauge(t *testing.T, name string) (n float64) {
	t.Helper()
	text := p.ask(t, "GET", "/metrics", "", nil, nil)
	m := regexp.MustCompile(`(?m)^foretoken_node_` + name + ` (\S+)$`).FindStringSubmatch(text)
	if _, err := fmt.Sscan(m[1], &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// checkStories compares answers with those of an undisturbed run.
func checkStories(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] || !strings.Contains(want[i], "token_logprobs") {
			t.Errorf("%s: answer %d is %.300s, want %.300s", what, i, got[i], want[i])
		}
	}
}

// A server computes on two nodes, one known by keys and one by nothing since it is here. A node is killed and started again,
// and stopped for a moment, while it computes: all answers have the bits of a server without nodes. When a node stays away,
// requests end with an error that names it, and so does the server. A node whose leader was killed has its memory back.
func TestNodesFailAndAnswersStay(t *testing.T) {
	const tokens = 150
	state := t.TempDir()
	plain := lead(t, state)
	want := plain.stories(tokens)
	plain.kill(t)

	leader := strings.TrimSpace(runWith(t, state, "node", "--fingerprint"))
	one, two := &place{args: []string{"--leader", leader}}, &place{}
	first, second := one.node(t), two.node(t)
	args := []string{"--node", one.at + "#" + one.print, "--node", two.at, "--node-wait", "10m"}
	p := lead(t, state, args...)
	if !strings.Contains(p.log.String(), "fingerprint="+leader+"\n") {
		t.Errorf("the leader does not log its fingerprint: %s", &p.log)
	}
	checkStories(t, "two nodes", p.stories(tokens), want)
	checkStories(t, "killed", within(t, p, first, tokens, func() {
		first.kill(t)
		p.logged(t, "a node is gone")
		first = one.node(t)
	}), want)
	p.logged(t, "a node is back")
	if runStopped {
		checkStories(t, "stopped for three seconds", within(t, p, second, tokens, func() { second.stop(t, 3*time.Second) }), want)
	}
	if held := first.gauge(t, "own_weight_bytes_total"); held == 0 {
		t.Error("the node did not read its own copy of the weights")
	}
	// Another leader is told which one the node serves.
	if r := runIn(t, nil, "generate", "--prompt", "Hi.", "--max-tokens", "1", "--node", two.at); r.code != 1 || !strings.Contains(r.err, "node "+two.at+": ") || !strings.Contains(r.err, "serves the leader at") {
		t.Errorf("a second leader: %+v", r)
	}

	// A leader that is killed leaves nothing.
	p.kill(t)
	for began := time.Now(); second.gauge(t, "used_bytes")+second.gauge(t, "leaders") > 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatal("the node keeps the memory of a leader that is gone")
		}
	}
	// The next is served, until a node is away for longer than the leader waits.
	args[len(args)-1] = "100ms"
	p = lead(t, state, args...)
	answers := within(t, p, first, 4000, func() { first.kill(t) }) // which take minutes
	for _, a := range answers {
		if !strings.Contains(a, "lost") || !strings.Contains(a, "node "+one.at) {
			t.Errorf("the answer without the node: %.300s", a)
		}
	}
	<-p.end
	if err := p.cmd.Wait(); p.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(p.log.String(), "node "+one.at) {
		t.Errorf("the server ends with %v: %s", err, &p.log)
	}
}

// runWith runs the program as another process with a folder for state, and returns its output.
func runWith(t testing.TB, state string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env, cmd.Stdout = append(os.Environ(), asProgram+"=1", "XDG_STATE_HOME="+state), &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return out.String()
}

// Inspect shows the placement that serve uses, with output and head on the leader. A node of 256 MB is not measured: the
// rates of the plan do not depend on the machine.
func TestInspectShowsThePlacementOnNodes(t *testing.T) {
	n := &place{}
	n.node(t)
	o := runIn(t, nil, "inspect", "tiny", "--node", n.at, "--context", "512", "--json")
	var facts doctor.Facts
	if err := json.Unmarshal([]byte(o.out), &facts); err != nil || o.code != 0 || len(facts.Devices) != 1 {
		t.Fatalf("%v: %+v", err, o)
	}
	shown := facts.Devices[0]
	if shown.Device != "auto,"+n.at || !shown.Fits || !strings.Contains(shown.Where, "output, head, vision tower on cpu ") || !strings.Contains(shown.Where, " on node "+n.at+", ") {
		t.Errorf("%+v", shown)
	}
	threads := regexp.MustCompile(`\d+ threads`)
	p := lead(t, t.TempDir(), "--node", n.at, "--context", "512")
	if used := threads.ReplaceAllString(p.log.String(), ""); !strings.Contains(used, `"tiny: `+threads.ReplaceAllString(shown.Where, "")+`"`) {
		t.Errorf("inspect shows %s; serve: %s", shown.Where, used)
	}
	p.kill(t)
	if o = runIn(t, nil, "inspect", "tiny", "--node", n.at, "--gpu-memory", "1GB"); o.code != exitUsage || !strings.Contains(o.err, "cannot be combined") {
		t.Errorf("%+v", o)
	}
}

// A node with a token, on a port of its own: who does not have it is refused, with what to do.
func TestNodeMistakesAreExplained(t *testing.T) {
	dir := t.TempDir()
	token, other := filepath.Join(dir, "token"), filepath.Join(dir, "other")
	for path, text := range map[string]string{token: strings.Repeat("t", 40), other: strings.Repeat("o", 40)} {
		filetest.Write(t, path, text)
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := &place{args: []string{"--node-token", token}}
	p := n.node(t)
	wrong := n.at + "#" + strings.Repeat("b", 32)
	inspect := func(args string) string { return "inspect tiny " + args }
	explained(t, []mistake{
		{inspect("--node " + n.at), "-", 1, "node " + n.at + ": it asks for a token: give the file that it has"},
		{inspect("--node " + n.at + "#" + n.print), "-", 1, "it asks for a token: give the file that it has with --node-token"},
		{inspect("--node " + n.at + " --node-token " + other), "-", 1, "it has another token"},
		{inspect("--node " + wrong + " --node-token " + token), "-", 1, "its fingerprint is " + n.print},
		{inspect("--node 127.0.0.1:1"), "-", 1, "node 127.0.0.1:1: it cannot be reached: start 'foretoken node' there, or check the address"},
		{inspect("--node 192.0.2.1:1"), "-", 2, "is another machine: give the fingerprint"},
		{inspect("--node a"), "-", 2, "want HOST:PORT or HOST:PORT#FINGERPRINT"},
		{inspect("--node a:1 --node a:1"), "-", 2, "is there twice"},
		{inspect("--node-token " + token), "-", 2, "--node-token needs --node"},
		{inspect("--node a:1 --node-token none"), "-", 1, "--node-token: open none"},
		{"serve --node 127.0.0.1:1 --model tiny --model " + dir, "-", 2, "--node computes layers of one model"},
		{"node --listen 0.0.0.0:0", "-", 2, "--leader FINGERPRINT or --node-token FILE"},
		{"node --leader abc", "-", 2, "want the 32 letters and digits"},
		{"node --weights nowhere", "-", 1, "--weights: model nowhere"},
		{"node --memory 0%", "-", 2, "want a share such as 90%, or a size such as 20GB"},
		{"node --metrics-addr 1", "-", 2, "want HOST:PORT"},
		{"node more", "-", 2, "takes no argument"},
	})
	if r := runIn(t, nil, "devices", "--node", "127.0.0.1:1", "--node", n.at, "--node-token", token); r.code != 1 || !strings.Contains(r.out, "127.0.0.1:1: not available: it cannot be reached") || !strings.Contains(r.out, "node "+n.at+": cpu ") {
		t.Errorf("%+v", r)
	}
	if n := p.gauge(t, "refused_connections_total"); n < 3 {
		t.Errorf("%v connections were refused", n)
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-p.end
	if err := p.cmd.Wait(); err != nil || !strings.Contains(p.log.String(), "the node ends") {
		t.Errorf("%v: %s", err, &p.log)
	}
}
