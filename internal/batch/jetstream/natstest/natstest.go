// Package natstest runs NATS servers as processes of their own, for tests that kill them. The
// process is the test program itself, told by a variable to be a server.
package natstest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// variable makes a test program a node, with its settings.
const variable = "FORETOKEN_TEST_NODE"

// Node is a server as a process.
type Node struct {
	Name        string
	Port, Route int      // 0: any that is free, at the first start
	Routes      []string // none: it is no part of a cluster
	Dir         string
	Security    *Security // nil: anybody may talk to it

	process *exec.Cmd
}

// Main runs tests, or the node that a test of the same program has started.
func Main(m *testing.M) {
	Be()
	os.Exit(m.Run())
}

// Be returns if the process is to be none. A node runs until it is killed, or its parent ends.
func Be() {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	if err := be(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func be(text string) error {
	var n Node
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return err
	}
	o := &server.Options{ServerName: n.Name, Host: "127.0.0.1", Port: cmp.Or(n.Port, server.RANDOM_PORT), NoSigs: true, JetStream: true, StoreDir: n.Dir}
	if len(n.Routes) > 0 {
		o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: n.Route}
	}
	for _, r := range n.Routes {
		u, err := url.Parse(r)
		if err != nil {
			return err
		}
		o.Routes = append(o.Routes, u)
	}
	if n.Security != nil {
		if err := n.Security.apply(o); err != nil {
			return err
		}
	}
	s, err := server.NewServer(o)
	if err != nil {
		return err
	}
	s.SetLoggerV2(fatal{}, false, false, false)
	s.Start()
	if !s.ReadyForConnections(patience) {
		return fmt.Errorf("%s cannot be reached", n.Name)
	}
	fmt.Println(s.Addr().(*net.TCPAddr).Port)
	_, _ = os.Stdin.Read(make([]byte, 1)) // ends when the parent does
	s.Shutdown()
	return nil
}

// patience is how long a node may take to start.
const patience = time.Minute

// fatal is a log that ends the process of a node that cannot start, as when another has its port.
type fatal struct{}

func (fatal) Noticef(string, ...any) {}
func (fatal) Warnf(string, ...any)   {}
func (fatal) Errorf(string, ...any)  {}
func (fatal) Debugf(string, ...any)  {}
func (fatal) Tracef(string, ...any)  {}
func (fatal) Fatalf(format string, v ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", v...)
	os.Exit(1)
}

// Start starts the process of a node, and returns when it listens. A port that it had before may be
// somebody else's for a while.
func (n *Node) Start(t *testing.T) {
	t.Helper()
	for began := time.Now(); ; {
		err := n.start(t)
		if err == nil {
			return
		}
		if time.Since(began) > patience {
			t.Fatal(err)
		}
	}
}

func (n *Node) start(t *testing.T) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	n.process = exec.CommandContext(t.Context(), os.Args[0])
	n.process.Env = append(os.Environ(), variable+"="+string(text))
	n.process.Stderr = os.Stderr
	if _, err := n.process.StdinPipe(); err != nil {
		return err
	}
	out, err := n.process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := n.process.Start(); err != nil {
		return err
	}
	if _, err := fmt.Fscan(out, &n.Port); err != nil {
		n.end()
		return fmt.Errorf("%s does not start: %w", n.Name, err)
	}
	return nil
}

// Kill ends the process of a node without a word.
func (n *Node) Kill(t *testing.T) {
	t.Helper()
	if err := n.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = n.process.Wait() // it was killed
}

// Cluster starts nodes that know each other, and says where they are. They end with the test. Several
// need a moment before they have a leader.
func Cluster(t *testing.T, size int) (nodes []*Node, servers []string) {
	t.Helper()
	dir := t.TempDir()
	var routes []string
	ports := make([]int, size)
	if size > 1 { // who starts has to know where the others will be
		for i, port := range free(t, size) {
			ports[i], routes = port, append(routes, fmt.Sprintf("nats://127.0.0.1:%d", port))
		}
	}
	for i := range size {
		n := &Node{Name: fmt.Sprint("node", i), Route: ports[i], Routes: routes, Dir: filepath.Join(dir, fmt.Sprint(i))}
		n.Start(t)
		t.Cleanup(n.end)
		nodes, servers = append(nodes, n), append(servers, fmt.Sprintf("nats://127.0.0.1:%d", n.Port))
	}
	return nodes, servers
}

// end ends the process of a node that may be dead.
func (n *Node) end() {
	_ = n.process.Process.Kill()
	_ = n.process.Wait()
}

// free are ports that nobody has now.
func free(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // all of them at the end, so that they differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}
