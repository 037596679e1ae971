package cost

import "testing"

// TestFirstPassCountsThoughDisturbed has plain passes follow drafts: the first of its size is better than nothing, the
// next ones do not count, and one after another plain pass does.
func TestFirstPassCountsThoughDisturbed(t *testing.T) {
	var m Model
	for i, want := range []int{1, 1, 1} {
		m.ObservePass(2, 1, ms(11))
		m.ObservePass(1, 0, ms(10))
		if n := m.Measured(1); n != want {
			t.Errorf("pass %d: %d are counted, want %d", i, n, want)
		}
	}
	if m.ObservePass(1, 0, ms(10)); m.Measured(1) != 2 {
		t.Errorf("%d passes are counted, want 2", m.Measured(1))
	}
	if m.ObservePass(0, 0, ms(10)); m.Measured(0) != 2 {
		t.Error("a pass without rows is counted")
	}
}

// TestSurprisesAreShared has a call of the drafter take ten times as long as expected. The cost of its steps and that of its
// tokens rise by the same time, and other costs stay.
func TestSurprisesAreShared(t *testing.T) {
	const steps, tokens = 4, 16
	var m Model
	for range 40 {
		m.ObservePass(1, 0, ms(10))
		m.ObserveDraft([]int{1}, ms(1))
		m.ObserveDraft([]int{2, 2}, ms(2.5))
		m.ObserveDraft([]int{0}, ms(0.5))
		m.ObserveRest(ms(1))
	}
	step, draft, idle, rest := m.Draft(1, 0, 1), m.Draft(1, 1, 1)-m.Draft(1, 0, 1), m.Draft(0, 0, 1), m.Rest()
	expected := m.Draft(steps, tokens, 4)
	for range 12 {
		m.ObserveDraft([]int{4, 4, 4, 4}, ms(10*10*expected))
	}
	near(t, "cost of the call", m.Draft(steps, tokens, 4), 10*expected, 0.1)
	bySteps, byTokens := steps*(m.Draft(1, 0, 1)-step), tokens*(m.Draft(1, 1, 1)-m.Draft(1, 0, 1)-draft)
	near(t, "cost of steps, by that of tokens", bySteps/byTokens, 1, 0.5)
	near(t, "cost of catching up", m.Draft(0, 0, 1), idle, 1e-9)
	near(t, "time of the rest", m.Rest(), rest, 1e-9)
	m.ObserveRest(ms(1))
	m.ObserveDraft([]int{0}, ms(0.5))
	near(t, "cost of catching up, measured again", m.Draft(0, 0, 1), idle, 0.1)
	near(t, "time of the rest, measured again", m.Rest(), rest, 0.1)
}
