// Package natstest runs NATS servers as processes of their own, for tests that kill them. The
// process is the test program itself, told by a variable to be a server.
package natstest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// variable makes a test program a node, with its settings.
const variable = "FORETOKEN_TEST_NODE"

// Node is a server as a process.
type Node struct {
	Name        string
	Port, Route int
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
	o := &server.Options{ServerName: n.Name, Host: "127.0.0.1", Port: n.Port, NoSigs: true, NoLog: true, JetStream: true, StoreDir: n.Dir}
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
	s.Start()
	_, _ = os.Stdin.Read(make([]byte, 1)) // ends when the parent does
	s.Shutdown()
	return nil
}

// Start starts the process of a node.
func (n *Node) Start(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	n.process = exec.CommandContext(t.Context(), os.Args[0])
	n.process.Env = append(os.Environ(), variable+"="+string(text))
	n.process.Stderr = os.Stderr
	if _, err := n.process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := n.process.Start(); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the process of a node without a word.
func (n *Node) Kill(t *testing.T) {
	t.Helper()
	if err := n.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = n.process.Wait() // it was killed
}

// Cluster starts nodes that know each other, and says where they are. They end with the test. They
// need a moment before they can be reached.
func Cluster(t *testing.T, size int) (nodes []*Node, servers []string) {
	t.Helper()
	dir := t.TempDir()
	ports := free(t, 2*size)
	var routes []string
	for i := range size {
		if size > 1 {
			routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[size+i]))
		}
		servers = append(servers, fmt.Sprintf("nats://127.0.0.1:%d", ports[i]))
	}
	for i := range size {
		nodes = append(nodes, &Node{Name: fmt.Sprint("node", i), Port: ports[i], Route: ports[size+i], Routes: routes, Dir: filepath.Join(dir, fmt.Sprint(i))})
	}
	for _, n := range nodes {
		n.Start(t)
	}
	t.Cleanup(func() {
		for _, n := range nodes {
			n.end()
		}
	})
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
