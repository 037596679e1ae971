package foretoken_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/foretoken/foretoken"
)

func TestSpeculationStatsAsJSON(t *testing.T) {
	s := foretoken.SpeculationStats{
		Drafter: "auto", Rule: foretoken.Ratio, Rounds: 4, Drafted: 6, Accepted: 3, DraftedAt: [foretoken.MaxDepth]int{4, 2},
		AcceptedAt: [foretoken.MaxDepth]int{3}, Draft: 1500 * time.Microsecond, Verify: 9 * time.Millisecond,
	}
	// What was not measured is null.
	const plain = `{"rounds":4,"drafted":6,"accepted":3,"accepted_by_position":[3,0],"tokens_per_round":1.75,"mean_depth":1.5,` +
		`"rule":"ratio","drafter":"auto","draft_ms":1.5,"verify_ms":9,"beta":null,"delta":null,"speedup_estimate":null}`
	check := func(want string) {
		t.Helper()
		if text, err := json.Marshal(&s); err != nil || string(text) != want {
			t.Errorf("got  %s, %v\nwant %s", text, err, want)
		}
	}
	check(plain)
	s.PassCost, s.DraftCost, s.Speedup, s.DraftVocab, s.Copied, s.CopiedAccepted, s.Beside, s.BesideAccepted = 1.2, 0.1, 1.0/3, 100, 2, 1, 4, 3
	check(`{"rounds":4,"drafted":6,"accepted":3,"accepted_by_position":[3,0],"tokens_per_round":1.75,"mean_depth":1.5,` +
		`"rule":"ratio","drafter":"auto","draft_vocab":100,"draft_ms":1.5,"verify_ms":9,"beta":1.2,"delta":0.1,"speedup_estimate":0.333333,` +
		`"copied":2,"copied_accepted":1,"beside":4,"beside_accepted":3}`)
	s = foretoken.SpeculationStats{Rounds: 4, Forced: 6, Rule: foretoken.Exact}
	if !s.Any() {
		t.Error("forced tokens are nothing to tell")
	}
	check(`{"rounds":4,"drafted":0,"accepted":0,"forced":6,"accepted_by_position":[],"tokens_per_round":2.5,"mean_depth":0,` +
		`"rule":"exact","drafter":"","draft_ms":0,"verify_ms":0,"beta":null,"delta":null,"speedup_estimate":null}`)
	s = foretoken.SpeculationStats{}
	check(`{"rounds":0,"drafted":0,"accepted":0,"accepted_by_position":[],"tokens_per_round":0,"mean_depth":0,` +
		`"rule":"","drafter":"","draft_ms":0,"verify_ms":0,"beta":null,"delta":null,"speedup_estimate":null}`)
}
