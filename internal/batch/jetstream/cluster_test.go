package jetstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/foretoken/foretoken/internal/batch"
	"github.com/foretoken/foretoken/internal/batch/batchtest"
	"github.com/foretoken/foretoken/internal/batch/jetstream"
)

// nodeVariable makes the test program a node of a cluster, with its settings.
const nodeVariable = "FORETOKEN_TEST_NODE"

// node is a server of a cluster, as a process of its own.
type node struct {
	Name        string
	Port, Route int
	Routes      []string
	Dir         string

	process *exec.Cmd
}

func TestMain(m *testing.M) {
	if text := os.Getenv(nodeVariable); text != "" {
		if err := beNode(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// beNode runs a server until the process is killed, or nobody reads what it prints.
func beNode(text string) error {
	var n node
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return err
	}
	var routes []*url.URL
	for _, r := range n.Routes {
		u, err := url.Parse(r)
		if err != nil {
			return err
		}
		routes = append(routes, u)
	}
	s, err := server.NewServer(&server.Options{
		ServerName: n.Name, Host: "127.0.0.1", Port: n.Port, NoSigs: true, NoLog: true, JetStream: true, StoreDir: n.Dir,
		Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: n.Route}, Routes: routes,
	})
	if err != nil {
		return err
	}
	s.Start()
	_, err = os.Stdin.Read(make([]byte, 1)) // ends when the parent does
	s.Shutdown()
	return err
}

// start starts the process of a node.
func (n *node) start(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	n.process = exec.CommandContext(t.Context(), os.Args[0])
	n.process.Env = append(os.Environ(), nodeVariable+"="+string(text))
	n.process.Stderr = os.Stderr
	if _, err := n.process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := n.process.Start(); err != nil {
		t.Fatal(err)
	}
}

// kill ends the process of a node without a word.
func (n *node) kill(t *testing.T) {
	t.Helper()
	if err := n.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = n.process.Wait() // it was killed
}

// cluster starts three nodes.
func cluster(t *testing.T) (nodes []*node, servers []string) {
	t.Helper()
	dir := t.TempDir()
	var listeners []net.Listener
	for range 6 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
	}
	port := func(i int) int { return listeners[i].Addr().(*net.TCPAddr).Port }
	var routes []string
	for i := range 3 {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", port(3+i)))
	}
	for i := range 3 {
		nodes = append(nodes, &node{Name: fmt.Sprint("node", i), Port: port(i), Route: port(3 + i), Routes: routes, Dir: filepath.Join(dir, fmt.Sprint(i))})
		servers = append(servers, fmt.Sprintf("nats://127.0.0.1:%d", port(i)))
	}
	for _, l := range listeners {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes {
		n.start(t)
		t.Cleanup(func() {
			_ = n.process.Process.Kill() // it may be dead
			_ = n.process.Wait()
		})
	}
	return nodes, servers
}

// dial connects to a cluster that is about to find itself.
func dial(t *testing.T, servers []string) *jetstream.Conn {
	t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		c, err := jetstream.Dial(t.Context(), jetstream.Options{Servers: servers, AckWait: 5 * time.Second})
		if err == nil {
			t.Cleanup(c.Close)
			return c
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatal(err)
		}
	}
}

// Three nodes, and one is killed while lines are worked on, and comes back: every result is there.
func TestClusterLosesANode(t *testing.T) {
	nodes, servers := cluster(t)
	c := dial(t, servers)
	q := c.Queue()
	s, err := c.Store(t.Context(), t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	checkCluster(t, c, s)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	lines := clusterLines
	var all sync.WaitGroup
	stop, stopWorkers := context.WithCancel(ctx)
	for range 4 {
		all.Go(func() { work(stop, q, s) })
	}
	for i := range lines { // a cluster without a leader refuses for a moment
		for err := q.Publish(ctx, hints(lines)[i:i+1]); err != nil && ctx.Err() == nil; err = q.Publish(ctx, hints(lines)[i:i+1]) {
			time.Sleep(50 * time.Millisecond)
		}
		switch i {
		case lines / 3:
			nodes[0].kill(t)
		case 2 * lines / 3:
			nodes[0].start(t)
		}
	}
	for count(ctx, s) < lines && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	stopWorkers()
	all.Wait()
	if n := count(ctx, s); n != lines {
		t.Errorf("%d results, want %d: %v", n, lines, ctx.Err())
	}
}

// work stores a result for each hint.
func work(ctx context.Context, q batch.Queue, s batch.Store) {
	for ctx.Err() == nil {
		list, err := q.Fetch(ctx, "m", 4)
		if err != nil {
			time.Sleep(20 * time.Millisecond)
		}
		for _, d := range list {
			err := s.Create(ctx, fmt.Sprintf("results/b/%d", d.Hint().Line), strings.NewReader(fmt.Sprint(d.Hint().Line)))
			if err == nil || errors.Is(err, batch.ErrExists) {
				_ = d.Done() // else it comes again, and is found
			}
		}
	}
}

// count is how many results there are.
func count(ctx context.Context, s batch.Store) (n int) {
	for _, err := range s.List(ctx, "results/b/") {
		if err == nil {
			n++
		}
	}
	return n
}

// checkCluster runs the checks that every store and queue passes, on one of three copies.
func checkCluster(t *testing.T, c *jetstream.Conn, s batch.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for _, x := range batchtest.StoreChecks {
		if err := x.Check(ctx, s); err != nil {
			t.Errorf("%s: %v", x.Name, err)
		}
		if err := jetstream.EraseState(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range batchtest.QueueChecks {
		if x.Name != "KeepsModelsApart" && x.Name != "TakesAnyName" {
			continue // hints of the others are those of this test, which would be left out
		}
		if err := x.Check(ctx, c.Queue()); err != nil {
			t.Errorf("%s: %v", x.Name, err)
		}
	}
}
