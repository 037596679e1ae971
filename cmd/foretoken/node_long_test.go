//go:build long

package main

import (
	"strings"
	"testing"
	"time"
)

// runStopped has a test stop a node for seconds.
const runStopped = true

// A node that is stopped for longer than it may be silent is gone. It is used again when it continues within the wait.
func TestSilentNodeComesBack(t *testing.T) {
	const tokens = 150
	state := t.TempDir()
	plain := lead(t, state)
	want := plain.stories(tokens)
	plain.kill(t)
	at := &place{}
	node := at.node(t)
	p := lead(t, state, "--node", at.at, "--node-wait", "60s")
	checkStories(t, "stopped for 30 seconds", within(t, p, node, tokens, func() { node.stop(t, 30*time.Second) }), want)
	p.logged(t, "no sign of life")
	p.logged(t, "a node is back")
	p.kill(t)
	p = lead(t, state, "--node", at.at, "--node-wait", "1s")
	for _, a := range within(t, p, node, tokens, func() { node.stop(t, 30*time.Second) }) {
		if !strings.Contains(a, "node "+at.at) {
			t.Errorf("the answer without the node: %.300s", a)
		}
	}
	<-p.end
	_ = p.cmd.Wait() // it ended with an error
	if p.cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("the server ends with %v", p.cmd.ProcessState)
	}
}
