package remote_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/dtype"
)

// asNode and asLeader have a process of the tests be a node at an address, or a leader of one.
const (
	asNode   = "FORETOKEN_TEST_NODE"
	asLeader = "FORETOKEN_TEST_LEADER"
)

func TestMain(m *testing.M) {
	if os.Getenv(asNode)+os.Getenv(asLeader) != "" {
		go func() { // the process of the tests has ended, perhaps by a panic
			_, err := io.Copy(io.Discard, os.Stdin)
			exit(err)
		}()
	}
	if addr := os.Getenv(asNode); addr != "" {
		exit(beNode(addr))
	}
	if addr := os.Getenv(asLeader); addr != "" {
		exit(beLeader(addr))
	}
	os.Exit(m.Run())
}

func exit(err error) {
	fmt.Println(err)
	os.Exit(1)
}

func beNode(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	s := &remote.Server{
		Open: func() (backend.Backend, error) { return backend.Open("cpu", backend.Options{Threads: 1}) },
		Log:  slog.New(slog.DiscardHandler),
	}
	return s.Serve(context.Background(), l)
}

// beLeader takes memory of a node and stays.
func beLeader(addr string) error {
	b, err := remote.Open(context.Background(), remote.Options{Name: addr, Dial: dialer(addr)})
	if err != nil {
		return err
	}
	x, err := b.Alloc(dtype.F32, 1<<10, 1<<10)
	if err != nil {
		return err
	}
	_, err = b.Host(x) // the node may have no patience
	fmt.Println("leading", err)
	select {}
}

func dialer(addr string) func(ctx context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", addr) }
}

// start starts a process of the tests, which the test ends, and returns its first line.
func start(t *testing.T, variable, addr string) (p *os.Process, line string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+addr)
	out, err := cmd.StdoutPipe()
	if err == nil {
		_, err = cmd.StdinPipe() // which ends with this process
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return cmd.Process, strings.TrimSpace(line)
}

// A node whose process is killed and started again has what the host had written, and zeros elsewhere. Until the leader has
// restored it every call fails, with the node's name.
func TestKilledNodeIsRestored(t *testing.T) {
	node, addr := start(t, asNode, "127.0.0.1:0")
	own := matrices{}
	b, err := remote.Open(t.Context(), remote.Options{
		Name: "desk", Dial: dialer(addr), Wait: patience, Weights: own, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	m := dtype.Matrix{Rows: 16, Cols: 2, Type: dtype.F32, Data: make([]byte, 16*2*4)}
	m.Data[3] = 0x40 // 2 in the first place
	own[remote.DigestOf(&m)] = m
	w, err := b.Load(backend.Float32, m)
	if err != nil {
		t.Fatal(err)
	}
	gain, other, out := vector(t, b, 3, 4), vector(t, b, 5, 6), vector(t, b, make([]float32, 16)...)
	b.Fill(other, 7)
	product := func() []float32 {
		b.Pass(backend.Pass{Of: t}, func() { b.MatMul(gain, backend.Product{Dst: out, W: w}) })
		return read(t, b, out)
	}
	if got := product(); got[0] != 6 {
		t.Fatalf("the product is %v", got)
	}
	if err := node.Kill(); err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil; { // it may answer once more
		_, err = b.Host(gain)
	}
	if _, again := b.Host(gain); again == nil || backend.Lost(again) || !strings.Contains(again.Error(), "node desk is gone: ") {
		t.Errorf("without a node: %v", again)
	}
	if _, err := b.Load(backend.Float32, m); err == nil {
		t.Error("a weight is loaded without a node")
	}
	start(t, asNode, addr)
	if lost, err := backend.Restore(b); !lost || err != nil {
		t.Fatalf("Restore: %v, %v", lost, err)
	}
	if x, y := read(t, b, gain), read(t, b, other); x[0] != 3 || x[1] != 4 || y[0] != 0 || y[1] != 0 {
		t.Errorf("memory is %v and %v", x, y)
	}
	if got := product(); got[0] != 6 {
		t.Errorf("the product is %v", got)
	}
}

// matrices are found by their digests.
type matrices map[remote.Digest]dtype.Matrix

func (k matrices) Find(d remote.Digest, _ *dtype.Matrix) (dtype.Matrix, bool, error) {
	m, ok := k[d]
	return m, ok, nil
}

func (k matrices) Keep(d remote.Digest, m *dtype.Matrix) { k[d] = *m }

// A node that comes back without a weight, which the leader has no copy of either, is lost with a sentence that says so.
func TestNodeWithoutWeightsIsLost(t *testing.T) {
	n := backendtest.StartNode(t, backend.Options{Threads: 1})
	b := open(t, n, remote.Options{Wait: patience, OpenWait: patience, Log: slog.New(slog.DiscardHandler)})
	if _, err := b.Load(backend.Int8, dtype.Matrix{Rows: 3, Cols: 5, Type: dtype.F32, Data: make([]byte, 60)}); err != nil {
		t.Fatal(err)
	}
	x := vector(t, b, 1)
	n.Stop()
	n.Start(t, n.Addr)
	if _, err := b.Host(x); err == nil {
		t.Error("memory of a session before is read")
	}
	_, err := backend.Restore(b)
	if err == nil || !backend.Lost(err) || !strings.Contains(err.Error(), "node desk: it has lost a weight of 3×5") {
		t.Errorf("Restore: %v", err)
	}
	if _, err := b.Alloc(dtype.F32, 1, 1); !backend.Lost(err) {
		t.Errorf("Alloc: %v", err)
	}
}

// A leader whose process is killed leaves nothing on the node.
func TestKilledLeaderLeavesNothing(t *testing.T) {
	n := backendtest.StartNode(t, backend.Options{Threads: 1})
	leader, _ := start(t, asLeader, n.Addr)
	if s := n.Status(); s.Used < 4<<20 {
		t.Fatalf("status %+v", s)
	}
	if err := leader.Kill(); err != nil {
		t.Fatal(err)
	}
	open(t, n, remote.Options{Wait: patience, OpenWait: patience}) // once it is free
	if s := n.Status(); s.Used != 0 {
		t.Errorf("status %+v", s)
	}
}
