package server

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/foretoken/foretoken/internal/bridge"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/rescue"
)

// engines collects what the engines of the loaded models count. It is a
// prometheus.Collector.
type engines struct{ s *Server }

// series is one number of an engine's account.
type series struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*engine.Stats) float64
}

func newSeries(name, help string, kind prometheus.ValueType, of func(*engine.Stats) float64) series {
	return series{prometheus.NewDesc(name, help, []string{byModel}, nil), kind, of}
}

// engineSeries are the numbers that are one per model.
var engineSeries = []series{
	newSeries("foretoken_requests_running", "Requests that are being computed.", prometheus.GaugeValue, func(x *engine.Stats) float64 { return float64(x.Running) }),
	newSeries("foretoken_requests_waiting", "Requests that wait to be started.", prometheus.GaugeValue, func(x *engine.Stats) float64 { return float64(x.Waiting) }),
	newSeries("foretoken_kv_cache_usage_ratio", "Share of the memory for sequences that running ones hold and the prefix cache could not give up.", prometheus.GaugeValue, usage),
	newSeries("foretoken_kv_used_bytes", "Memory of sequences and of the prefix cache that is in use: keys, values and recurrent state.", prometheus.GaugeValue, func(x *engine.Stats) float64 { return float64(x.Memory.Used) }),
	newSeries("foretoken_kv_budget_bytes", "Most of that memory.", prometheus.GaugeValue, func(x *engine.Stats) float64 { return float64(x.Memory.Budget) }),
	newSeries("foretoken_kv_pages", "Pages of keys and values in use.", prometheus.GaugeValue, func(x *engine.Stats) float64 { return float64(x.Memory.Pages) }),
	newSeries("foretoken_prefix_cache_bytes", "Memory that the prefix cache holds, among that in use.", prometheus.GaugeValue, func(x *engine.Stats) float64 { return float64(x.Cache.Bytes) }),
	newSeries("foretoken_prefix_cache_entries", "Beginnings of texts that the prefix cache holds.", prometheus.GaugeValue, func(x *engine.Stats) float64 { return float64(x.Cache.Entries) }),
	newSeries("foretoken_prefix_cache_queries_total", "Prompts that were looked up in the prefix cache.", prometheus.CounterValue, func(x *engine.Stats) float64 { return float64(x.Cache.Hits + x.Cache.Misses) }),
	newSeries("foretoken_prefix_cache_hits_total", "Prompts whose beginning was found there.", prometheus.CounterValue, func(x *engine.Stats) float64 { return float64(x.Cache.Hits) }),
	newSeries("foretoken_prefix_cache_evictions_total", "Entries that were given up for want of memory.", prometheus.CounterValue, func(x *engine.Stats) float64 { return float64(x.Cache.Evictions) }),
	newSeries("foretoken_prompt_tokens_total", "Tokens of prompts of requests that ended.", prometheus.CounterValue, func(x *engine.Stats) float64 { return float64(x.PromptTokens) }),
	newSeries("foretoken_prompt_tokens_cached_total", "Those among them that were not computed anew.", prometheus.CounterValue, func(x *engine.Stats) float64 { return float64(x.CachedTokens) }),
	newSeries("foretoken_generation_tokens_total", "Tokens generated.", prometheus.CounterValue, func(x *engine.Stats) float64 { return float64(x.Tokens) }),
	newSeries("foretoken_preemptions_total", "Times that a request had to give its memory to others.", prometheus.CounterValue, func(x *engine.Stats) float64 { return float64(x.Preemptions) }),
	newSeries("foretoken_rounds_total", "Rounds computed for requests.", prometheus.CounterValue, func(x *engine.Stats) float64 { return float64(x.Rounds) }),
	newSeries("foretoken_background_prefills_waiting", "Conversations whose next prompt waits to be read in the background.", prometheus.GaugeValue, func(x *engine.Stats) float64 { return float64(x.Background.Waiting) }),
	newSeries("foretoken_background_prefill_tokens_total", "Tokens read in the background.", prometheus.CounterValue, func(x *engine.Stats) float64 { return float64(x.Background.Tokens) }),
	newSeries("foretoken_background_prefills_read_total", "Prompts that were read in the background to their end.", prometheus.CounterValue, func(x *engine.Stats) float64 { return float64(x.Background.Completed) }),
	newSeries("foretoken_background_prefills_dropped_total", "Prompts that were not: their turn came first, or there was no room.", prometheus.CounterValue, func(x *engine.Stats) float64 { return float64(x.Background.Dropped) }),
}

// The numbers that are several per model.
var (
	guessesDesc  = prometheus.NewDesc("foretoken_guesses_total", "Guesses by position, from 1, that came after right ones only.", []string{byModel, "position"}, nil)
	acceptedDesc = prometheus.NewDesc("foretoken_guesses_accepted_total", "Those among them that were right.", []string{byModel, "position"}, nil)
	finishedDesc = prometheus.NewDesc("foretoken_requests_finished_total", "Requests to engines that ended, by reason.", []string{byModel, "reason"}, nil)
)

// usage is the share of the memory that sequences alone hold.
func usage(x *engine.Stats) float64 {
	if x.Memory.Budget == 0 {
		return 0
	}
	return float64(max(x.Memory.Used-x.Cache.Bytes, 0)) / float64(x.Memory.Budget)
}

// Describe implements prometheus.Collector.
func (e *engines) Describe(to chan<- *prometheus.Desc) {
	for _, x := range engineSeries {
		to <- x.desc
	}
	to <- guessesDesc
	to <- acceptedDesc
	to <- finishedDesc
}

// Collect implements prometheus.Collector. The registry has a net of its own for panics; what it
// catches would be sent to whoever asked, with the stack.
func (e *engines) Collect(to chan<- prometheus.Metric) {
	if err := rescue.Do(func() error { e.collect(to); return nil }); err != nil {
		e.s.log.Error("metrics", "error", err)
		to <- prometheus.NewInvalidMetric(guessesDesc, errors.New("the engines could not be asked; the log says why"))
	}
}

func (e *engines) collect(to chan<- prometheus.Metric) {
	for _, v := range e.s.library.Status() {
		if v.Model == nil {
			continue
		}
		x := bridge.Engine(v.Model).Stats()
		for _, n := range engineSeries {
			to <- prometheus.MustNewConstMetric(n.desc, n.kind, n.of(&x), v.Name)
		}
		for j := range x.Drafted {
			at := strconv.Itoa(j + 1)
			to <- prometheus.MustNewConstMetric(guessesDesc, prometheus.CounterValue, float64(x.Drafted[j]), v.Name, at)
			to <- prometheus.MustNewConstMetric(acceptedDesc, prometheus.CounterValue, float64(x.Accepted[j]), v.Name, at)
		}
		for reason, n := range x.Finished {
			to <- prometheus.MustNewConstMetric(finishedDesc, prometheus.CounterValue, float64(n), v.Name, string(reason))
		}
		to <- prometheus.MustNewConstMetric(finishedDesc, prometheus.CounterValue, float64(x.Canceled), v.Name, "canceled")
		to <- prometheus.MustNewConstMetric(finishedDesc, prometheus.CounterValue, float64(x.Faults), v.Name, "fault")
	}
}
