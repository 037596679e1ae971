package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/foretoken/foretoken"
)

// sharedStatus is the status of the store of prefixes that servers share.
type sharedStatus struct {
	Up             bool    `json:"up"`
	Latency        float64 `json:"latency_ms"`       // of a small request; 0: not known
	BytesPerSecond float64 `json:"bytes_per_second"` // of reads; 0: not known
	Prefill        float64 `json:"prefill_tokens_per_second"`
	Fetched        int64   `json:"fetched"` // prefixes
	Refused        int64   `json:"refused"` // prefixes that were computed, which was expected to be faster
	Written        int64   `json:"written"` // objects
	Failures       int64   `json:"failures"`
}

// newSharedStatus is nil without a store.
func newSharedStatus(x *foretoken.SharedCacheStats) *sharedStatus {
	if !x.Used {
		return nil
	}
	s := &sharedStatus{
		Up: !x.Down, Latency: x.Latency.Seconds() * 1e3, BytesPerSecond: x.BytesPerSecond, Fetched: x.Fetched, Refused: x.Refused, Written: x.Written, Failures: x.Failures,
	}
	if x.TokenTime > 0 {
		s.Prefill = 1 / x.TokenTime.Seconds()
	}
	return s
}

func newSharedSeries(name, help string, kind prometheus.ValueType, of func(*foretoken.SharedCacheStats) float64) series[foretoken.SharedCacheStats] {
	return newSeries("foretoken_shared_prefix_"+name, help, kind, of, byModel)
}

// sharedSeries have one value per model that shares its prefixes.
var sharedSeries = seriesOf[foretoken.SharedCacheStats]{
	newSharedSeries("up", "Whether the shared store of prefixes answers.", prometheus.GaugeValue, func(x *foretoken.SharedCacheStats) float64 { return truth(!x.Down) }),
	newSharedSeries("latency_seconds", "Moving estimate of the time of a small request to the shared store; 0: unknown.", prometheus.GaugeValue, func(x *foretoken.SharedCacheStats) float64 { return x.Latency.Seconds() }),
	newSharedSeries("bytes_per_second", "Moving estimate of the rate of the shared store; 0: unknown.", prometheus.GaugeValue, func(x *foretoken.SharedCacheStats) float64 { return x.BytesPerSecond }),
	newSharedSeries("token_seconds", "Moving estimate of the time to compute a prompt token, compared with the time to fetch it; 0: unknown.", prometheus.GaugeValue, func(x *foretoken.SharedCacheStats) float64 { return x.TokenTime.Seconds() }),
	newSharedSeries("lookups_total", "Lookups in the shared store.", prometheus.CounterValue, func(x *foretoken.SharedCacheStats) float64 { return float64(x.Lookups) }),
	newSharedSeries("fetched_total", "Prefixes fetched from the shared store.", prometheus.CounterValue, func(x *foretoken.SharedCacheStats) float64 { return float64(x.Fetched) }),
	newSharedSeries("fetched_bytes_total", "Bytes of these prefixes.", prometheus.CounterValue, func(x *foretoken.SharedCacheStats) float64 { return float64(x.FetchedBytes) }),
	newSharedSeries("refused_total", "Prefixes in the shared store that were computed, because that was expected to be faster.", prometheus.CounterValue, func(x *foretoken.SharedCacheStats) float64 { return float64(x.Refused) }),
	newSharedSeries("late_total", "Prefixes that did not arrive from the shared store within the time to compute them.", prometheus.CounterValue, func(x *foretoken.SharedCacheStats) float64 { return float64(x.Late) }),
	newSharedSeries("written_total", "Objects written to the shared store.", prometheus.CounterValue, func(x *foretoken.SharedCacheStats) float64 { return float64(x.Written) }),
	newSharedSeries("written_bytes_total", "Bytes of these objects.", prometheus.CounterValue, func(x *foretoken.SharedCacheStats) float64 { return float64(x.WrittenBytes) }),
	newSharedSeries("dropped_total", "Objects not written to the shared store, because the queue was full or the store failed.", prometheus.CounterValue, func(x *foretoken.SharedCacheStats) float64 { return float64(x.Dropped) }),
	newSharedSeries("ignored_total", "Objects of the shared store that were damaged or foreign.", prometheus.CounterValue, func(x *foretoken.SharedCacheStats) float64 { return float64(x.Ignored) }),
	newSharedSeries("failures_total", "Failed requests to the shared store.", prometheus.CounterValue, func(x *foretoken.SharedCacheStats) float64 { return float64(x.Failures) }),
}
