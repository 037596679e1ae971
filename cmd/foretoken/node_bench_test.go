package main

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// delayed is the address of a proxy to another one that delays all bytes, in both directions.
func delayed(b *testing.B, to string, delay time.Duration) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			front, err := l.Accept()
			if err != nil {
				return
			}
			back, err := net.Dial("tcp", to)
			if err != nil {
				_ = front.Close()
				return
			}
			all.Go(func() { carry(front, back, delay) })
			all.Go(func() { carry(back, front, delay) })
		}
	})
	b.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

// carry copies from one connection to another, each piece after a delay, and closes both in the end.
func carry(from, to net.Conn, delay time.Duration) {
	type piece struct {
		data []byte
		at   time.Time
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer close(pieces)
		for {
			data := make([]byte, 64<<10)
			n, err := from.Read(data)
			if n > 0 {
				pieces <- piece{data[:n], time.Now().Add(delay)}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		for wait := time.Until(p.at); wait > 0; wait = time.Until(p.at) {
			if wait > 200*time.Microsecond { // a sleep lasts longer than it is asked to
				time.Sleep(wait - 150*time.Microsecond)
			}
		}
		if _, err := to.Write(p.data); err != nil {
			break
		}
	}
	_ = from.Close()
	_ = to.Close()
	for range pieces { // until the reader has ended
		continue
	}
}

// BenchmarkNode measures passes of a model over two or four processes with one thread each, as a share of one process with one
// thread. Passes of 1, 2 and 4 rows are rounds of depth 0, 1 and 3. The processes run alternately: -benchtime 5x is five
// repetitions. The figures are medians.
func BenchmarkNode(b *testing.B) {
	for _, shape := range []string{"0.8b", "2b", "9b"} {
		for _, machines := range []int{2, 4} {
			for _, delay := range []time.Duration{0, 100 * time.Microsecond, 800 * time.Microsecond} {
				b.Run(fmt.Sprintf("shape=%s/machines=%d/delay=%v", shape, machines, delay), func(b *testing.B) {
					shareOfOne(b, shape, machines, delay)
				})
			}
		}
	}
}

func shareOfOne(b *testing.B, shape string, machines int, delay time.Duration) {
	b.Helper()
	rows := []int{1, 2, 4}
	var state string
	var nodes []string
	for range machines - 1 {
		n := &place{args: []string{"--weights", "tiny"}, memory: "90%"}
		n.node(b)
		state, nodes = n.state, append(nodes, "--node", delayed(b, n.at, delay))
	}
	shares := make([][]float64, len(rows))
	for range b.N {
		alone, with := passes(b, state, shape), passes(b, state, shape, nodes...)
		for i := range rows {
			shares[i] = append(shares[i], alone[i]/with[i])
		}
	}
	for i := range rows {
		slices.Sort(shares[i])
		b.ReportMetric(shares[i][len(shares[i])/2], fmt.Sprintf("share-%drows", rows[i]))
	}
}

// passes are the seconds of passes of 1, 2 and 4 rows.
func passes(b *testing.B, state, shape string, args ...string) []float64 {
	b.Helper()
	out := runWith(b, state, append([]string{"bench", "model", "--shape", shape, "--bits", "4", "--rows", "1,2,4", "--prompts", "4", "--repeats", "5", "--threads", "1", "--json"}, args...)...)
	var r struct{ Passes []struct{ Seconds float64 } }
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Passes) != 3 {
		b.Fatalf("%v: %s", err, out)
	}
	return []float64{r.Passes[0].Seconds, r.Passes[1].Seconds, r.Passes[2].Seconds}
}
