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

// series is one value of statistics of type T.
type series[T any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*T) float64
}

// seriesOf are several of them.
type seriesOf[T any] []series[T]

func (list seriesOf[T]) describe(to chan<- *prometheus.Desc) {
	for _, x := range list {
		to <- x.desc
	}
}

// collect sends the values of x. labels are the values of the labels.
func (list seriesOf[T]) collect(to chan<- prometheus.Metric, x *T, labels ...string) {
	for _, n := range list {
		to <- prometheus.MustNewConstMetric(n.desc, n.kind, n.of(x), labels...)
	}
}

func newSeries[T any](name, help string, kind prometheus.ValueType, of func(*T) float64, labels ...string) series[T] {
	return series[T]{prometheus.NewDesc(name, help, labels, nil), kind, of}
}

// perModel is a series with one value per model.
func perModel(name, help string, kind prometheus.ValueType, of func(*foretoken.Stats) float64) series[foretoken.Stats] {
	return newSeries(name, help, kind, of, byModel)
}

// perDevice is a series with one value per model and device.
func perDevice(name, help string, kind prometheus.ValueType, of func(*foretoken.DeviceStats) float64) series[foretoken.DeviceStats] {
	return newSeries(name, help, kind, of, byModel, "device")
}

// truth is the value of a gauge that is 1 or 0.
func truth(x bool) float64 {
	if x {
		return 1
	}
	return 0
}

// engineSeries have one value per model.
var engineSeries = seriesOf[foretoken.Stats]{
	perModel("foretoken_requests_running", "Requests in the batch.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.Running) }),
	perModel("foretoken_requests_waiting", "Requests in the queue.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.Waiting) }),
	perModel("foretoken_kv_cache_usage_ratio", "Share of the memory budget in use by running requests, without the prefix cache, which can be evicted.", prometheus.GaugeValue, usage),
	perModel("foretoken_kv_used_bytes", "Memory in use by running requests and the prefix cache: KV cache and recurrent state.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.KVUsed) }),
	perModel("foretoken_kv_budget_bytes", "Maximum of foretoken_kv_used_bytes.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.KVBudget) }),
	perModel("foretoken_kv_pages", "KV cache pages in use, without those of sliding windows.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.KVPages) }),
	perModel("foretoken_kv_page_tokens", "Tokens of a KV cache page.", prometheus.GaugeValue, func(*foretoken.Stats) float64 { return foretoken.PageTokens }),
	perModel("foretoken_kv_pages_max", "Pages that foretoken_kv_budget_bytes could hold of one sequence, its recurrent state and the drafter's pages included.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.KVMaxPages) }),
	perModel("foretoken_prefix_cache_bytes", "Memory of the prefix cache, part of foretoken_kv_used_bytes.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.PrefixCache.Bytes) }),
	perModel("foretoken_prefix_cache_entries", "Prefixes in the prefix cache.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.PrefixCache.Entries) }),
	perModel("foretoken_prefix_cache_queries_total", "Prompts looked up in the prefix cache.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.PrefixCache.Hits + x.PrefixCache.Misses) }),
	perModel("foretoken_prefix_cache_hits_total", "Prompts with a prefix in the prefix cache.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.PrefixCache.Hits) }),
	perModel("foretoken_prefix_cache_evictions_total", "Entries evicted from the prefix cache to free memory.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.PrefixCache.Evictions) }),
	perModel("foretoken_prompt_tokens_total", "Prompt tokens of finished requests.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.PromptTokens) }),
	perModel("foretoken_prompt_tokens_cached_total", "Prompt tokens of finished requests that came from the prefix cache.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.CachedTokens) }),
	perModel("foretoken_generation_tokens_total", "Generated tokens.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.Tokens) }),
	perModel("foretoken_forced_tokens_total", "Generated tokens that a grammar forced, verified with the drafts of their round.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.Forced) }),
	perModel("foretoken_preemptions_total", "Requests preempted to free memory for others; each is computed again later.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.Preemptions) }),
	perModel("foretoken_rounds_total", "Rounds, each one forward pass over the batch.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.Rounds) }),
	perModel("foretoken_images_total", "Images and videos that the vision tower encoded.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.Vision.Pictures) }),
	perModel("foretoken_images_cached_total", "Images and videos found in the cache of the vision tower.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.Vision.Cached) }),
	perModel("foretoken_vision_seconds_total", "Time in the vision tower.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return x.Vision.Took.Seconds() }),
	perModel("foretoken_vision_cache_bytes", "Memory of the cached output of the vision tower.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.Vision.Bytes) }),
	perModel("foretoken_background_prefills_waiting", "Conversations whose next prompt is queued for background prefill.", prometheus.GaugeValue, func(x *foretoken.Stats) float64 { return float64(x.Background.Waiting) }),
	perModel("foretoken_background_prefill_tokens_total", "Tokens prefilled in the background.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.Background.Tokens) }),
	perModel("foretoken_background_prefills_completed_total", "Background prefills completed.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.Background.Completed) }),
	perModel("foretoken_background_prefills_dropped_total", "Background prefills dropped: the next request came first, or memory was needed.", prometheus.CounterValue, func(x *foretoken.Stats) float64 { return float64(x.Background.Dropped) }),
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
var deviceSeries = seriesOf[foretoken.DeviceStats]{
	perDevice("foretoken_device_memory_bytes", "Memory of the device; 0 if unknown.", prometheus.GaugeValue, func(d *foretoken.DeviceStats) float64 { return float64(d.Memory) }),
	perDevice("foretoken_device_memory_free_bytes", "Free memory of the device, other processes considered.", prometheus.GaugeValue, func(d *foretoken.DeviceStats) float64 { return float64(d.Free) }),
	perDevice("foretoken_device_memory_used_bytes", "Memory of the device that the model uses: weights, state, activations.", prometheus.GaugeValue, func(d *foretoken.DeviceStats) float64 { return float64(d.Used) }),
	perDevice("foretoken_device_graphs", "Recorded passes that can be replayed: graphs, on a GPU.", prometheus.GaugeValue, func(d *foretoken.DeviceStats) float64 { return float64(d.Recordings) }),
	perDevice("foretoken_device_graphs_recorded_total", "Passes recorded for replay.", prometheus.CounterValue, func(d *foretoken.DeviceStats) float64 { return float64(d.Recorded) }),
	perDevice("foretoken_device_graphs_replayed_total", "Passes replayed.", prometheus.CounterValue, func(d *foretoken.DeviceStats) float64 { return float64(d.Replayed) }),
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
	engineSeries.describe(to)
	sharedSeries.describe(to)
	deviceSeries.describe(to)
	for _, d := range []*prometheus.Desc{draftedDesc, acceptedDesc, weightsDesc, phaseDesc, finishedDesc, runningDesc, waitingDesc, fullestDesc} {
		to <- d
	}
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
		engineSeries.collect(to, &x, v.Name)
		if shared := &x.PrefixCache.Shared; shared.Used {
			sharedSeries.collect(to, shared, v.Name)
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
			deviceSeries.collect(to, &x.Devices[i], v.Name, x.Devices[i].Device)
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
