//go:build long

package main

import (
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/batch/jetstream/natstest"
)

// Two workers, and one or the server is killed in the middle of a batch, repeatedly: each line
// has one result, that of an undisturbed run. Lines of a killed worker are reassigned after half a
// minute.
func TestKilledWorkersLoseNoLine(t *testing.T) {
	_, servers := natstest.Cluster(t, 1)
	reach(t, servers[0])
	dir := t.TempDir()
	serve := []string{"serve", "--port", "0", "--queue", servers[0], "--state-dir", dir, "--batch-lines", "4"}
	worker := []string{"worker", "--queue", servers[0], "--state-dir", dir, "--batch-lines", "4", "tiny"}
	p := start(t, serve...)
	want := p.answers(t, p.submit(t, faultLines).ID, faultLines)
	workers := []*program{start(t, worker...), start(t, worker...)}
	r := rand.New(rand.NewPCG(19, 3))
	id := p.submit(t, faultLines).ID
	before := 0
	for kill := range faultKills {
		target := before + 1 + r.IntN(max(1, (faultLines-24-before)/(faultKills-kill)))
		before = p.until(t, id, func(b standing) bool { return b.Counts.Completed >= target }).Counts.Completed
		if victim := r.IntN(3); victim < 2 {
			workers[victim].kill(t)
			workers[victim] = start(t, worker...)
		} else {
			p.kill(t)
			p = start(t, serve...)
		}
	}
	same(t, p.answers(t, id, faultLines), want)
	// Lines that were computed although a result existed: at most those running at a kill.
	if n := p.counted(t, "found"); n > 4*faultKills {
		t.Errorf("%d lines were computed or looked for again, want at most %d", n, 4*faultKills)
	}
}
