package foretoken

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/drafter"
	"github.com/foretoken/foretoken/internal/models"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/private"
	"github.com/foretoken/foretoken/internal/prompt"
	"github.com/foretoken/foretoken/internal/tokenizer"
	"github.com/foretoken/foretoken/sample"
)

// Model is an open checkpoint with its tokenizer and chat template. Its methods may be called
// from several goroutines.
type Model struct {
	name      string
	info      model.Info
	device    string
	placement []Placement
	context   int
	load      time.Duration
	text      *prompt.Builder
	tok       *tokenizer.Tokenizer
	generates checkpoint.Generation
	draft     drafting
	grammars  *grammars
	log       *slog.Logger

	engine  *engine.Engine
	model   model.Model
	drafter *drafter.Drafter // nil: none beside the model
	family  *model.Family
	backend backend.Backend
	shadow  struct { // computes passes again; nil: not
		device backend.Backend
		model  model.Model
	}
	disk    *store.Disk
	shared  *store.Shared
	store   private.Store     // of shared
	secret  [sha256.Size]byte // that salts are mixed with
	cached  bool
	pages   int // of the longest possible sequence
	builtIn bool
	source  source
	// drafterSum identifies the drafter's file; "": there is none, or nothing is stored.
	drafterSum string

	warming *background
	// preparing is called before the next turn of a conversation is prepared; for tests.
	preparing func()
}

// Name is the model's name for people.
func (m *Model) Name() string { return m.name }

// Info describes the model.
func (m *Model) Info() Info {
	i := &m.info
	info := Info{
		Family: i.Family, Vocab: i.Vocab, Width: i.Width, Layers: i.Layers, Context: i.Context,
		Parameters: i.Parameters, Bytes: i.Bytes, Compute: Compute(i.Compute), Head: i.Head,
		Vision: m.vision(),
	}
	if d := m.drafter; d != nil {
		info.Drafter = &DrafterInfo{d.Kind.String(), d.Bytes}
		info.Bytes += d.Bytes
	}
	return info
}

// Device is the name of the device, for people.
func (m *Model) Device() string { return m.device }

// Context is the maximum number of tokens of a prompt and its answer together.
func (m *Model) Context() int { return m.context }

// Vocab is the number of ids that stand for tokens. Info.Vocab may be more, by padding.
func (m *Model) Vocab() int { return m.text.Vocab() }

// LoadTime is how long Open took.
func (m *Model) LoadTime() time.Duration { return m.load }

// Encode returns the tokens of a text, in which the spellings of control tokens stand for them.
func (m *Model) Encode(text string) []int32 { return m.tok.Encode(text) }

// Decode returns the text of tokens, control tokens included.
func (m *Model) Decode(ids []int32) string { return m.tok.Decode(ids, false) }

// Token returns the bytes of one token, "" for an id that is only padding, and whether it is a
// control token.
func (m *Model) Token(id int32) (text string, control bool) {
	text, _ = m.tok.Token(id)
	return text, m.tok.Special(id)
}

// Sampling is how the checkpoint recommends to choose tokens, with a new seed. Whether its
// numbers make sense is for Generate to say.
func (m *Model) Sampling() sample.Options { return models.Recommended(m.generates) }

// Placement lists the parts of the model on each device.
func (m *Model) Placement() []Placement {
	if m.placement != nil {
		return m.placement
	}
	return []Placement{{Device: m.device, Layers: m.info.Layers, Parts: []string{"all"}, Weights: m.info.Bytes}}
}

// vision describes the tower, or nil.
func (m *Model) vision() *VisionInfo {
	tower, pixels := m.text.Tower()
	if tower == nil {
		return nil
	}
	t := tower.Info()
	return &VisionInfo{
		Layers: t.Layers, Width: t.Width, Patch: t.Patch, Merge: t.Merge, Parameters: t.Parameters, Bytes: t.Bytes, MaxPixels: pixels,
	}
}

// Drafter names the drafter, or "".
func (m *Model) Drafter() string {
	if m.draft.drafter == nil {
		return ""
	}
	return m.draft.drafter.Name()
}

// Drafting describes how tokens are drafted, for people.
func (m *Model) Drafting() string {
	d := &m.draft
	if d.drafter == nil {
		return "none"
	}
	return fmt.Sprintf("by %s, depth %v, accepted by the %s rule", d.drafter.Name(), d.depth, d.rule)
}

// SelfTest returns the result of the self-test, or nil.
func (m *Model) SelfTest() *SelfTest { return m.draft.tested }

// Stats returns the figures of this moment.
func (m *Model) Stats() Stats {
	s := m.engine.Stats()
	x := Stats{
		Running: s.Running, Waiting: s.Waiting, Rounds: s.Rounds, Finished: map[Finish]int64{}, Canceled: s.Canceled, Faults: s.Faults,
		PromptTokens: s.PromptTokens, CachedTokens: s.CachedTokens, Tokens: s.Tokens, Forced: s.Forced, Preemptions: s.Preemptions,
		DraftedAt: s.Drafted, AcceptedAt: s.Accepted, KVUsed: s.Memory.Used, KVBudget: s.Memory.Budget, KVPages: s.Memory.Pages, KVMaxPages: m.pages,
		PrefixCache: PrefixCacheStats{
			Entries: s.Cache.Entries, Bytes: s.Cache.Bytes, Hits: s.Cache.Hits, Misses: s.Cache.Misses, Evictions: s.Cache.Evictions,
		},
		Background: BackgroundStats(s.Background), Vision: VisionStats(s.Tower), Phases: PhaseStats(s.Phases),
	}
	for _, u := range backend.UsageOf(m.backend) {
		x.Devices = append(x.Devices, DeviceStats(u))
	}
	if h := &s.Shared; m.shared != nil {
		x.PrefixCache.Shared = SharedCacheStats{
			Used: true, Down: h.Down, Latency: h.Latency, BytesPerSecond: h.BytesPerSecond, TokenTime: s.TokenTime, Lookups: h.Lookups,
			Fetched: h.Fetched, FetchedBytes: h.FetchedBytes, Refused: h.Refused, Late: h.Late, Written: h.Written, WrittenBytes: h.WrittenBytes,
			Dropped: h.Dropped, Ignored: h.Ignored, Failures: h.Failures,
		}
	}
	for reason, n := range s.Finished {
		x.Finished[Finish(reason)] = n
	}
	return x
}

// salt is a request's salt for the cache. It is mixed with a secret of the cache's
// folder, so that names of files there reveal nothing about salts, which may be made of keys; and
// with the same one in every process, so that stored entries are found again.
func (m *Model) salt(text string) (s prefix.Salt) {
	if text == "" {
		return s
	}
	h := hmac.New(sha256.New, m.secret[:])
	_, _ = h.Write([]byte("prefix cache salt\n" + text)) // a hash does not fail
	copy(s[:], h.Sum(nil))
	return s
}

// Drain lets all answers end, or ends them when ctx does. Further requests get ErrClosed. The model must
// still be closed.
func (m *Model) Drain(ctx context.Context) error { return m.engine.Drain(ctx) }

// source is where a model came from, to hash it on demand.
type source struct {
	path, projector  string
	drafter          string
	stamp            string // of its files when they were read
	quantize, kvBits int
}
