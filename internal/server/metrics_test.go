package server

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/filetest"
)

// metricNames are a promise to dashboards and gateways.
var metricNames = []string{
	"foretoken_accepted_tokens_total counter",
	"foretoken_all_kv_cache_usage_ratio gauge",
	"foretoken_all_requests_running gauge",
	"foretoken_all_requests_waiting gauge",
	"foretoken_background_prefill_tokens_total counter",
	"foretoken_background_prefills_completed_total counter",
	"foretoken_background_prefills_dropped_total counter",
	"foretoken_background_prefills_waiting gauge",
	"foretoken_device_graphs gauge",
	"foretoken_device_graphs_recorded_total counter",
	"foretoken_device_graphs_replayed_total counter",
	"foretoken_device_memory_bytes gauge",
	"foretoken_device_memory_free_bytes gauge",
	"foretoken_device_memory_used_bytes gauge",
	"foretoken_device_weight_bytes gauge",
	"foretoken_draft_depth histogram",
	"foretoken_draft_tokens_total counter",
	"foretoken_errors_total counter",
	"foretoken_forced_tokens_total counter",
	"foretoken_generation_tokens_total counter",
	"foretoken_http_request_duration_seconds histogram",
	"foretoken_http_requests_active gauge",
	"foretoken_http_requests_total counter",
	"foretoken_image_fetched_bytes_total counter",
	"foretoken_image_fetches_total counter",
	"foretoken_images_cached_total counter",
	"foretoken_images_total counter",
	"foretoken_inter_token_latency_seconds histogram",
	"foretoken_kv_budget_bytes gauge",
	"foretoken_kv_cache_usage_ratio gauge",
	"foretoken_kv_page_tokens gauge",
	"foretoken_kv_pages gauge",
	"foretoken_kv_pages_max gauge",
	"foretoken_kv_used_bytes gauge",
	"foretoken_offline_rows_total counter",
	"foretoken_phase_seconds_total counter",
	"foretoken_preemptions_total counter",
	"foretoken_prefix_cache_bytes gauge",
	"foretoken_prefix_cache_entries gauge",
	"foretoken_prefix_cache_evictions_total counter",
	"foretoken_prefix_cache_hits_total counter",
	"foretoken_prefix_cache_queries_total counter",
	"foretoken_prompt_tokens_cached_total counter",
	"foretoken_prompt_tokens_total counter",
	"foretoken_queue_time_seconds histogram",
	"foretoken_ready gauge",
	"foretoken_requests_finished_total counter",
	"foretoken_requests_running gauge",
	"foretoken_requests_waiting gauge",
	"foretoken_round_seconds histogram",
	"foretoken_round_sequences histogram",
	"foretoken_rounds_total counter",
	"foretoken_time_to_first_token_seconds histogram",
	"foretoken_vision_cache_bytes gauge",
	"foretoken_vision_seconds_total counter",
}

// scrape returns the values of all series, and the families with their types.
func (r *running) scrape() (values map[string]float64, names []string) {
	r.t.Helper()
	values = map[string]float64{}
	for line := range strings.Lines(r.do("GET", "/metrics", "").body) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "# TYPE foretoken_"); ok {
			names = append(names, "foretoken_"+name)
		}
		if at := strings.LastIndexByte(line, ' '); line[0] != '#' {
			v, err := strconv.ParseFloat(line[at+1:], 64)
			if err != nil {
				r.t.Fatal(err)
			}
			values[line[:at]] = v
		}
	}
	return values, names
}

// TestForcedTokensAreCountedApart has answers under a grammar, with drafts and without: the tokens
// that it forces are in stats, trace and metrics, and not among the draft tokens.
func TestForcedTokensAreCountedApart(t *testing.T) {
	r := start(t, nil)
	all := 0
	for _, depth := range []string{"0", "2"} {
		var a struct {
			Usage struct {
				Details struct {
					Accepted int `json:"accepted_prediction_tokens"`
				} `json:"completion_tokens_details"`
			} `json:"usage"`
			Foretoken struct {
				MTP struct {
					Rounds, Drafted, Accepted, Forced int
				} `json:"mtp"`
				Tokens []struct {
					Draft  int
					Forced bool
				} `json:"tokens"`
			} `json:"foretoken"`
		}
		body := `{"prompt": "There was", "temperature": 0, "guided_choice": ["a little girl named Lily and her friend", "nobody there at all"],
			"foretoken": {"stats": true, "trace": true}, "mtp_depth": ` + depth + `}`
		filetest.Decode(t, r.do("POST", "/v1/completions", body).body, &a)
		forced, accepted := 0, 0
		for _, token := range a.Foretoken.Tokens {
			switch {
			case token.Forced && token.Draft > 0:
				forced++
			case token.Draft > 0:
				accepted++
			}
		}
		all += forced
		if m := a.Foretoken.MTP; forced < 3 || m.Forced != forced || a.Usage.Details.Accepted != accepted || accepted > m.Accepted || depth == "0" && m.Drafted > 0 {
			t.Errorf("depth %s: %d tokens forced, %d drafts accepted, %+v", depth, forced, accepted, a)
		}
	}
	until(t, "all is counted", func() bool {
		v, _ := r.scrape()
		return v[`foretoken_forced_tokens_total{model_name="tiny"}`] == float64(all)
	})
}

func TestMetricsAgreeWithAnswers(t *testing.T) {
	r := start(t, nil)
	prompt, tokens, cached := 0.0, 0.0, 0.0
	const answers = 3
	for range answers { // the first fills the prefix cache
		var a struct {
			Usage struct {
				Prompt     float64 `json:"prompt_tokens"`
				Completion float64 `json:"completion_tokens"`
				Details    struct {
					Cached float64 `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			} `json:"usage"`
		}
		body := `{"prompt": "` + strings.Repeat("Once upon a time there was a cat. ", 20) + `", "max_tokens": 40, "temperature": 0, "ignore_eos": true, "mtp_depth": 2}`
		filetest.Decode(t, r.do("POST", "/v1/completions", body).body, &a)
		prompt, tokens, cached = prompt+a.Usage.Prompt, tokens+a.Usage.Completion, cached+a.Usage.Details.Cached
	}
	if cached == 0 {
		t.Error("nothing was cached")
	}
	r.do("POST", chatPath, `{"messages": 5}`)
	const answered, refused = `foretoken_http_requests_total{endpoint="/v1/completions",status="200"}`, `foretoken_http_requests_total{endpoint="/v1/chat/completions",status="400"}`
	var v map[string]float64
	var names []string
	until(t, "all is counted", func() bool { // a request is counted when its answer is gone
		if !r.idle() {
			return false
		}
		v, names = r.scrape()
		return v["foretoken_http_requests_active"] == 1 && v[answered] == answers && v[refused] == 1
	})
	if !slices.Equal(names, metricNames) {
		t.Errorf("got %s", strings.Join(names, "\n"))
	}
	const of = `{model_name="tiny"}`
	for series, want := range map[string]float64{
		"foretoken_ready":                                                        1,
		"foretoken_http_requests_active":                                         1, // the one that asks
		"foretoken_requests_running" + of:                                        0,
		"foretoken_requests_waiting" + of:                                        0,
		"foretoken_prompt_tokens_total" + of:                                     prompt,
		"foretoken_prompt_tokens_cached_total" + of:                              cached,
		"foretoken_generation_tokens_total" + of:                                 tokens,
		"foretoken_prefix_cache_hits_total" + of:                                 answers - 1,
		"foretoken_prefix_cache_queries_total" + of:                              answers,
		"foretoken_kv_cache_usage_ratio" + of:                                    0,
		"foretoken_kv_budget_bytes" + of:                                         256 << 20,
		"foretoken_time_to_first_token_seconds_count" + of:                       answers,
		"foretoken_inter_token_latency_seconds_count" + of:                       answers,
		"foretoken_queue_time_seconds_count" + of:                                answers,
		"foretoken_draft_depth_count" + of:                                       answers,
		"foretoken_round_seconds_count" + of:                                     v["foretoken_rounds_total"+of],
		`foretoken_requests_finished_total{model_name="tiny",reason="length"}`:   answers,
		`foretoken_requests_finished_total{model_name="tiny",reason="canceled"}`: 0,
		`foretoken_errors_total{kind="invalid_request"}`:                         1,
	} {
		if got, ok := v[series]; !ok || got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	accepted := v["foretoken_accepted_tokens_total"+`{model_name="tiny",position="1"}`]
	if drafted := v["foretoken_draft_tokens_total"+`{model_name="tiny",position="1"}`]; accepted == 0 || accepted > drafted {
		t.Errorf("%v of %v draft tokens accepted", accepted, drafted)
	}
	rounds := 0.0 // their time, by phase
	for _, phase := range []string{"forward", "sample", "draft", "other"} {
		took := v[`foretoken_phase_seconds_total{model_name="tiny",phase="`+phase+`"}`]
		if rounds += took; took <= 0 {
			t.Errorf("phase %s took %v seconds", phase, took)
		}
	}
	if all := v["foretoken_round_seconds_sum"+of]; math.Abs(rounds-all) > 1e-6*all+1e-6 {
		t.Errorf("the phases of rounds took %v seconds, the rounds %v", rounds, all)
	}
	if v["foretoken_prefix_cache_bytes"+of] == 0 || v["foretoken_kv_used_bytes"+of] < v["foretoken_prefix_cache_bytes"+of] {
		t.Errorf("the cache has %v of %v bytes", v["foretoken_prefix_cache_bytes"+of], v["foretoken_kv_used_bytes"+of])
	}
}

// Errors of endpoints without a model are counted and logged like others.
func TestNotFoundIsCounted(t *testing.T) {
	r := start(t, nil)
	for _, path := range []string{"/v1/models/absent", "/v1/responses/absent", "/nothing"} {
		if a := r.do("GET", path, ""); a.status != 404 {
			t.Errorf("%s: %+v", path, a)
		}
	}
	until(t, "all three are counted", func() bool { // a request is counted when its answer is gone
		v, _ := r.scrape()
		return v[`foretoken_errors_total{kind="not_found"}`] == 3
	})
}

func TestStatusShowsWhatRuns(t *testing.T) {
	r := start(t, func(o *Options) {
		slow(o)
		o.Models = append(o.Models, Model{Name: "other", Path: "tiny"})
	})
	look := func() (o overview) {
		filetest.Decode(t, r.do("GET", "/v1/status", "").body, &o)
		return o
	}
	if o := look(); len(o.Models) != 2 || o.Models[0].ID != "tiny" || o.Models[0].State != stateLoaded || o.Models[1].State != stateIdle || o.Models[0].KVBudget == 0 {
		t.Errorf("got %+v", o)
	} else if d := o.Models[0].Devices; len(d) != 1 || !strings.HasPrefix(d[0].Name, "cpu ") || d[0].Layers == 0 || d[0].Weights == 0 || d[0].Used < d[0].Weights/2 || d[0].Free > d[0].Memory || len(o.Models[1].Devices) != 0 {
		t.Errorf("devices: %+v", o)
	}
	a, _ := r.stream(t.Context(), 4000)
	until(t, "it is seen", func() bool { // a round is counted after its tokens were sent
		m := look().Models[0]
		return m.Running == 1 && m.KVUsed > 0 && m.TokensPerSecond > 0
	})
	_ = a.Body.Close()
	until(t, "it is gone", r.idle)
}

func TestRateIsOfTheLastSeconds(t *testing.T) {
	var r rate
	now := time.Unix(1000, 0)
	for i := range 40 { // four seconds of ten tokens each tenth
		r.add(now.Add(time.Duration(i)*rateSlot), 10)
	}
	last := now.Add(39 * rateSlot)
	if got := r.perSecond(last); got != 100 {
		t.Errorf("%v tokens per second, want 100", got)
	}
	if got := r.perSecond(last.Add(time.Second)); got != 50 {
		t.Errorf("a second later %v, want 50", got)
	}
	if got := r.perSecond(last.Add(time.Minute)); got != 0 {
		t.Errorf("a minute later %v, want 0", got)
	}
}

// Every request is one line of the log, with its stats.
func TestLogLine(t *testing.T) {
	r := start(t, nil)
	if a := r.do("POST", chatPath, hello, "X-Request-Id", "seen"); a.status != http.StatusOK {
		t.Fatalf("%+v", a)
	}
	var line string
	until(t, "it is logged", func() bool {
		for l := range strings.Lines(r.log.String()) {
			if strings.Contains(l, "request_id=seen") {
				line = l
			}
		}
		return line != ""
	})
	for _, want := range []string{
		"level=INFO", "msg=request", "method=POST", "path=" + chatPath, "status=200", "model=tiny", "seed=1", "prompt_tokens=", "cached_tokens=0",
		"tokens=8", "finish=length", "queue_ms=", "prefill_ms=", "decode_ms=", "tok_s=", "batch=1", "rounds=", "drafted=", "accepted=", "accepted_by_position=", "depth=",
	} {
		if !strings.Contains(line, want) {
			t.Errorf("no %s in %s", want, line)
		}
	}
}
