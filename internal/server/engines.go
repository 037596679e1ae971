package server

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/rescue"
)

// engines collects the statistics of the loaded models' engines. It is a prometheus.Collector.
type engines struct{ s *Server }

// series is one value of an engine's statistics.
type series struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*foretoken.Stats) float64
}

func newSeries(name, help string, kind prometheus.ValueType, of func(*foretoken.Stats) float64) series {
	return series{prometheus.NewDesc(name, help, []string{byModel}, nil), kind, of}
}

// engineSeries have one value per model.
var engineSeries = []series{
	newSeries("foretoken_requests_running", "Requests in the batch.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.Running) }),
	newSeries("foretoken_requests_waiting", "Requests in the queue.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.Waiting) }),
	newSeries("foretoken_kv_cache_usage_ratio", "Share of the memory budget in use by running requests, without the prefix cache, which can be evicted.", prometheus.GaugeValue, usage),
	newSeries("foretoken_kv_used_bytes", "Memory in use by running requests and the prefix cache: KV cache and recurrent state.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.KVUsed) }),
	newSeries("foretoken_kv_budget_bytes", "Maximum of foretoken_kv_used_bytes.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.KVBudget) }),
	newSeries("foretoken_kv_pages", "KV cache pages in use.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.KVPages) }),
	newSeries("foretoken_kv_page_tokens", "Tokens of a KV cache page.", prometheus.GaugeValue, func(*foretoken.Stats) float64 { return foretoken.PageTokens }),
	newSeries("foretoken_kv_pages_max", "Pages that foretoken_kv_budget_bytes could hold of one sequence, its recurrent state and the drafter's pages included.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.KVMaxPages) }),
	newSeries("foretoken_prefix_cache_bytes", "Memory of the prefix cache, part of foretoken_kv_used_bytes.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.PrefixCache.Bytes) }),
	newSeries("foretoken_prefix_cache_entries", "Prefixes in the prefix cache.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.PrefixCache.Entries) }),
	newSeries("foretoken_prefix_cache_queries_total", "Prompts looked up in the prefix cache.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.PrefixCache.Hits + x.PrefixCache.Misses) }),
	newSeries("foretoken_prefix_cache_hits_total", "Prompts with a prefix in the prefix cache.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.PrefixCache.Hits) }),
	newSeries("foretoken_prefix_cache_evictions_total", "Entries evicted from the prefix cache to free memory.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.PrefixCache.Evictions) }),
	newSeries("foretoken_prompt_tokens_total", "Prompt tokens of finished requests.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.PromptTokens) }),
	newSeries("foretoken_prompt_tokens_cached_total", "Prompt tokens of finished requests that came from the prefix cache.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.CachedTokens) }),
	newSeries("foretoken_generation_tokens_total", "Generated tokens.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.Tokens) }),
	newSeries("foretoken_forced_tokens_total", "Generated tokens that a grammar forced, verified with the drafts of their round.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.Forced) }),
	newSeries("foretoken_preemptions_total", "Requests preempted to free memory for others; each is computed again later.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.Preemptions) }),
	newSeries("foretoken_rounds_total", "Rounds, each one forward pass over the batch.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.Rounds) }),
	newSeries("foretoken_images_total", "Images and videos that the vision tower encoded.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.Vision.Pictures) }),
	newSeries("foretoken_images_cached_total", "Images and videos found in the cache of the vision tower.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.Vision.Cached) }),
	newSeries("foretoken_vision_seconds_total", "Time in the vision tower.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return x.Vision.Took.Seconds() }),
	newSeries("foretoken_vision_cache_bytes", "Memory of the cached output of the vision tower.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.Vision.Bytes) }),
	newSeries("foretoken_background_prefills_waiting", "Conversations whose next prompt is queued for background prefill.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.Background.Waiting) }),
	newSeries("foretoken_background_prefill_tokens_total", "Tokens prefilled in the background.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.Background.Tokens) }),
	newSeries("foretoken_background_prefills_completed_total", "Background prefills completed.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.Background.Completed) }),
	newSeries("foretoken_background_prefills_dropped_total", "Background prefills dropped: the next request came first, or memory was needed.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.Background.Dropped) }),
}

// The series with several values per model.
var (
	draftedDesc  = prometheus.NewDesc("foretoken_draft_tokens_total", "Draft tokens verified, by position in the draft, from 1. Those after a rejected token are not counted.", []string{byModel, "position"}, nil)
	acceptedDesc = prometheus.NewDesc("foretoken_accepted_tokens_total", "Draft tokens accepted, by position in the draft, from 1.", []string{byModel, "position"}, nil)
	weightsDesc  = prometheus.NewDesc("foretoken_device_weight_bytes", "Weights in memory, by the device that computes with them.", []string{byModel, "device"}, nil)
	phaseDesc    = prometheus.NewDesc("foretoken_phase_seconds_total", "Time of rounds by phase: forward, sample, draft, other. The vision tower has a separate series.", []string{byModel, "phase"}, nil)
	runningDesc  = prometheus.NewDesc("foretoken_all_requests_running", "Requests in the batches of all models.", nil, nil)
	waitingDesc  = prometheus.NewDesc("foretoken_all_requests_waiting", "Requests in the queues of all models.", nil, nil)
	fullestDesc  = prometheus.NewDesc("foretoken_all_kv_cache_usage_ratio", "Largest foretoken_kv_cache_usage_ratio of all models.", nil, nil)
	finishedDesc = prometheus.NewDesc("foretoken_requests_finished_total", "Finished requests, by reason.", []string{byModel, "reason"}, nil)
)

// deviceSeries are one value per model and device.
var deviceSeries = []struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*foretoken.DeviceStats) float64
}{
	{byDevice("foretoken_device_memory_bytes", "Memory of the device; 0 if unknown."), prometheus.GaugeValue, func(d *foretoken.DeviceStats) float64 { return float64(d.Memory) }},
	{byDevice("foretoken_device_memory_free_bytes", "Free memory of the device, other processes considered."), prometheus.GaugeValue, func(d *foretoken.DeviceStats) float64 { return float64(d.Free) }},
	{byDevice("foretoken_device_memory_used_bytes", "Memory of the device that the model uses: weights, state, activations."), prometheus.GaugeValue, func(d *foretoken.DeviceStats) float64 { return float64(d.Used) }},
	{byDevice("foretoken_device_graphs", "Recorded passes that can be replayed: graphs, on a GPU."), prometheus.GaugeValue, func(d *foretoken.DeviceStats) float64 { return float64(d.Recordings) }},
	{byDevice("foretoken_device_graphs_recorded_total", "Passes recorded for replay."), prometheus.CounterValue, func(d *foretoken.DeviceStats) float64 { return float64(d.Recorded) }},
	{byDevice("foretoken_device_graphs_replayed_total", "Passes replayed."), prometheus.CounterValue, func(d *foretoken.DeviceStats) float64 { return float64(d.Replayed) }},
}

func byDevice(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{byModel, "device"}, nil)
}

// usage is the share of the memory budget in use without the prefix cache.
func usage(x *foretoken.Stats) float64 {
	if x.KVBudget == 0 {
		return 0
	}
	return float64(max(x.KVUsed-x.PrefixCache.Bytes, 0)) / float64(x.KVBudget)
}

// Describe implements prometheus.Collector.
func (e *engines) Describe(to chan<- *prometheus.Desc) {
	for _, list := range [][]series{engineSeries, sharedSeries} {
		for _, x := range list {
			to <- x.desc
		}
	}
	to <- draftedDesc
	to <- acceptedDesc
	to <- weightsDesc
	to <- phaseDesc
	for _, x := range deviceSeries {
		to <- x.desc
	}
	to <- finishedDesc
	to <- runningDesc
	to <- waitingDesc
	to <- fullestDesc
}

// Collect implements prometheus.Collector. The registry would send a panic to the client with its
// stack, so it is recovered here.
func (e *engines) Collect(to chan<- prometheus.Metric) {
	if err := rescue.Do(func() error { e.collect(to); return nil }); err != nil {
		e.s.log.Error("metrics", "error", err)
		to <- prometheus.NewInvalidMetric(draftedDesc, errors.New("the statistics of the engines could not be read; the log has the reason"))
	}
}

func (e *engines) collect(to chan<- prometheus.Metric) {
	running, waiting, fullest := 0, 0, 0.0
	for _, v := range e.s.library.Status() {
		if v.Model == nil {
			continue
		}
		x := v.Model.Stats()
		running, waiting, fullest = running+x.Running, waiting+x.Waiting, max(fullest, usage(&x))
		for _, n := range engineSeries {
			to <- prometheus.MustNewConstMetric(n.desc, n.kind, n.of(&x), v.Name)
		}
		if x.PrefixCache.Shared.Used {
			for _, n := range sharedSeries {
				to <- prometheus.MustNewConstMetric(n.desc, n.kind, n.of(&x), v.Name)
			}
		}
		for j := range x.DraftedAt {
			at := strconv.Itoa(j + 1)
			to <- prometheus.MustNewConstMetric(draftedDesc, prometheus.CounterValue, float64(x.DraftedAt[j]), v.Name, at)
			to <- prometheus.MustNewConstMetric(acceptedDesc, prometheus.CounterValue, float64(x.AcceptedAt[j]), v.Name, at)
		}
		for _, p := range v.Model.Placement() {
			to <- prometheus.MustNewConstMetric(weightsDesc, prometheus.GaugeValue, float64(p.Weights), v.Name, p.Device)
		}
		for i := range x.Devices {
			for _, n := range deviceSeries {
				to <- prometheus.MustNewConstMetric(n.desc, n.kind, n.of(&x.Devices[i]), v.Name, x.Devices[i].Device)
			}
		}
		for phase, took := range map[string]time.Duration{"forward": x.Phases.Forward, "sample": x.Phases.Sample, "draft": x.Phases.Draft, "other": x.Phases.Other} {
			to <- prometheus.MustNewConstMetric(phaseDesc, prometheus.CounterValue, took.Seconds(), v.Name, phase)
		}
		for reason, n := range x.Finished {
			to <- prometheus.MustNewConstMetric(finishedDesc, prometheus.CounterValue, float64(n), v.Name, string(reason))
		}
		to <- prometheus.MustNewConstMetric(finishedDesc, prometheus.CounterValue, float64(x.Canceled), v.Name, "canceled")
		to <- prometheus.MustNewConstMetric(finishedDesc, prometheus.CounterValue, float64(x.Faults), v.Name, "fault")
	}
	to <- prometheus.MustNewConstMetric(runningDesc, prometheus.GaugeValue, float64(running))
	to <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(waiting))
	to <- prometheus.MustNewConstMetric(fullestDesc, prometheus.GaugeValue, fullest)
}
