// Package natstest runs NATS servers as processes, for tests that kill them. The program is a separate module
// in the folder server, which the go command builds at the first use and keeps in its cache.
package natstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Node is a server as a process.
type Node struct {
	Name        string
	Port, Route int      // 0: any free port, at the first start
	Routes      []string // of the nodes of its cluster; none: it is in no cluster
	Dir         string
	Security    Security // "": no authentication

	process *exec.Cmd
}

// Security is a folder with the certificates and users of a node, which the node makes at its first start.
type Security string

// CA is the file of the authority that signed the certificate, which Cert and Key are. All are in PEM.
func (s Security) CA() string { return filepath.Join(string(s), "ca.pem") }

// Cert is the file of a certificate for node and clients.
func (s Security) Cert() string { return filepath.Join(string(s), "cert.pem") }

// Key is the file of the certificate's private key.
func (s Security) Key() string { return filepath.Join(string(s), "key.pem") }

// Credentials is the file of a user of the node.
func (s Security) Credentials() string { return filepath.Join(string(s), "users.creds") }

// Strangers is the file of a user whom the node does not know.
func (s Security) Strangers() string { return filepath.Join(string(s), "strangers.creds") }

// program builds the server and returns its path in the cache of the go command, which has it from the
// second run on. Unlike go tool, go run builds with the flags in GOFLAGS, as make check does.
var program = sync.OnceValues(func() (string, error) {
	module, err := output("go", "env", "GOMOD") // of the tests, at the root of the repository
	if err != nil {
		return "", err
	}
	path := ""
	for range 2 {
		path, err = output("go", "run", "-C", filepath.Join(filepath.Dir(module), "internal", "batch", "jetstream", "natstest", "server"), ".")
		if err == nil {
			_, err = os.Stat(path)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return path, err
})

// output runs a command and returns its output.
func output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(text)), nil
}

// patience is how long a node may take to start.
const patience = 5 * time.Minute

// Start starts the process of a node, and returns when it listens. Another process may have its former port
// for a while.
func (n *Node) Start(t testing.TB) {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; {
		err := n.start(t, path)
		if err == nil {
			return
		}
		if time.Since(began) > patience {
			t.Fatal(err)
		}
	}
}

func (n *Node) start(t testing.TB, path string) error {
	settings, err := json.Marshal(n)
	if err != nil {
		return err
	}
	n.process = exec.CommandContext(t.Context(), path, string(settings))
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

// Kill ends the process of a node by SIGKILL.
func (n *Node) Kill(t testing.TB) {
	t.Helper()
	if err := n.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = n.process.Wait() // it was killed
}

// Secure starts a node with TLS and users, and returns its URL. The node ends with the test.
func Secure(t testing.TB) (*Node, string) {
	t.Helper()
	n := &Node{Name: "secure", Dir: t.TempDir(), Security: Security(t.TempDir())}
	n.Start(t)
	t.Cleanup(n.end)
	return n, fmt.Sprintf("tls://127.0.0.1:%d", n.Port)
}

// Cluster starts size nodes that know each other, and returns their URLs. They end with the test. A cluster
// needs a moment to elect a leader.
func Cluster(t testing.TB, size int) (nodes []*Node, servers []string) {
	t.Helper()
	dir := t.TempDir()
	var routes []string
	ports := make([]int, size)
	if size > 1 { // each node has to know the ports of the nodes that start later
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

// end ends the process of a node, which may have ended.
func (n *Node) end() {
	_ = n.process.Process.Kill()
	_ = n.process.Wait()
}

// free returns n ports that are free now.
func free(t testing.TB, n int) (ports []int) {
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
