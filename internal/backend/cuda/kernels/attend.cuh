// Common parts of the attention kernels: the layer, which rows see which part of a page, and how
// work is found in the call block. The context of a sequence is not part of a pass's shape, so
// grids do not depend on it: blocks count the work and take their share.
#pragma once
#include "bits.cuh"
#include "call.cuh"

const int pageTokens = 64, codedGroup = 64;

// Bytes of a group of 4 bits: of a key with its steps and lows, and of the columns of a page.
const int packedHalf = codedGroup / 2, packedKey = packedHalf + 4, packedValues = packedKey * pageTokens;

// uniform is x, which is equal in all threads of a warp: otherwise the compiler keeps
// threads together that might diverge, which costs more than the work.
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

// expDown is exp32 of numbers that are not above zero, or NaN, without a branch.
__device__ __forceinline__ float expDown(float x) {
  const float round = 12582912.0f;
  const float n = sub(fused(x, 1.44269504f, round), round);
  const float hi = fused(n, -0.693145751953125f, x), lo = mul(n, -1.42860682030941723212e-6f), r = add(hi, lo);
  float q = fused(0.000198909882f, r, 0.00139336474f);
  q = fused(q, r, 0.00833331048f);
  q = fused(q, r, 0.0416664667f);
  q = fused(q, r, 0.166666672f);
  q = fused(q, r, 0.5f);
  const float one = add(1.0f, hi), lost = sub(hi, sub(one, 1.0f));
  const float p = add(one, add(lost, fused(mul(r, r), q, lo)));
  const int k = (int)n, h = k >> 1;
  const float y = mul(mul(p, pow2(h)), pow2(k - h));
  return x < -87.33654f ? 0.0f : y;
}

const int nowhere = -(1 << 29);  // a position from which nothing is seen

// Types of numbers in pages.
const int f32 = 0, f16 = 1, i8 = 2, i4 = 3;

// A layer of attention and its prepared inputs: attend.go fills it in.
struct Layer {  // shared with Go
  int heads, kvHeads;
  int key, tail, value;    // numbers of a key in its rows of a page, in a latent row's second ones, of a value
  int head;                // numbers from one head's query to the next
  int kind, page;          // type of numbers, and first byte of a page that is the layer's
  int part[2];             // bytes of a head's keys in a page, and of the next part
  int latent, gate;
  int window, ahead;       // positions that a row sees up to its own, 0: all, and from its own on
  int pairs, interleaved;  // of rotation
  float eps, scale;
  int split;               // whether pages may be computed apart
  int slots;               // how many sums of a query over a page there is room for
  int queries;             // rows of queries, 0 to append only

  float *dst;
  const float *q, *k, *v, *qNorm, *kNorm;
  int dstStride, qStride, kStride, vStride;
  const float *rotation;   // [rows][2][pairs]: cosines and sines
  float *floats;           // [rows][heads][key+tail]: queries, normed and rotated; unless pages are of codes
  // The same of i8 and i4: codes, [rows][heads][groups*codedGroup], and for each group of a query its scale,
  // and the initial value of the sum of its codes times a key's code + 128, see codes.
  signed char *codes;
  float *scales;
  int *starts;
  // Sums over single pages: of values, [slots][columns], and their softmax terms.
  float *sums;
  float4 *tops;            // highest score, weight, and of codes the scale of the sums

  __device__ int share() const { return heads / kvHeads; }
  __device__ int keyGroups() const { return (key + codedGroup - 1) / codedGroup; }
  __device__ int groups() const { return keyGroups() + (tail + codedGroup - 1) / codedGroup; }
  __device__ int columns() const { return (value + 15) / 16 * 16; }
  __device__ bool coded() const { return kind >= i8; }
  // keyScales are behind the codes of rows of keys of some groups, valueScales behind those of values.
  __device__ float *keyScales(unsigned char *rows, int groups) const {
    return (float *)(rows + pageTokens * groups * (kind == i4 ? packedKey : codedGroup));
  }
  __device__ float *valueScales(unsigned char *rows) const {
    return (float *)(rows + (kind == i4 ? valueGroups() * packedValues : pageTokens * columns()));
  }
  __device__ int valueGroups() const { return (value + codedGroup - 1) / codedGroup; }
  // firstPage is the first page that the row at a position sees, end is behind the last position: see
  // Attention.Sees.
  __device__ int firstPage(int pos) const { return window > 0 ? max(0, pos + 1 - window) / pageTokens : 0; }
  __device__ int end(const Seq &s, int pos) const { return min(s.pos + s.n, pos + ahead); }
  __device__ int endPage(const Seq &s, int pos) const { return (end(s, pos) + pageTokens - 1) / pageTokens; }
  // sees is the positions [x, y) of a page that the row at a position sees.
  __device__ int2 sees(const Seq &s, int pos, int page) const {
    const int to = max(0, min(pageTokens, end(s, pos) - page * pageTokens));
    return make_int2(window > 0 ? min(to, max(0, pos + 1 - page * pageTokens - window)) : 0, to);
  }
  // rows are a head's part of a page: its keys (part 0), or its values or second parts (part 1).
  __device__ unsigned char *rows(unsigned char *at, int which, int kv) const {
    return at + page + (which ? (size_t)kvHeads * part[0] : 0) + (size_t)kv * part[which];
  }
};

// pagesOf is how many pages some row of a sequence sees, from firstPage of its first row on.
__device__ __forceinline__ int pagesOf(const Layer &a, const Seq &s) { return (s.pos + s.n + pageTokens - 1) / pageTokens - a.firstPage(s.pos); }

// A warp adds up count(sequence) over the sequences before the one that contains item index.
// It returns that sequence, or the number of sequences, and the count before it.
template <typename F>
__device__ __forceinline__ int locate(const Call *call, int index, int *before, F count) {
  const int lane = threadIdx.x & 31;
  *before = 0;
  if (call->seqs == 1) {  // most often: no warp is needed for that
    const int n = count(call->seq[0]);
    if (index >= n) *before = n;
    return index < n ? 0 : 1;
  }
#pragma unroll 1
  for (int first = 0; first < call->seqs; first += 32) {
    int upto = first + lane < call->seqs ? count(call->seq[first + lane]) : 0;
    const int own = upto;
#pragma unroll
    for (int w = 1; w < 32; w <<= 1) {
      const int x = __shfl_up_sync(0xffffffffu, upto, w);
      if (lane >= w) upto += x;
    }
    const int passed = __popc(__ballot_sync(0xffffffffu, *before + upto <= index));
    if (passed < 32) {
      *before += __shfl_sync(0xffffffffu, upto - own, passed);
      return first + passed;
    }
    *before += __shfl_sync(0xffffffffu, upto, 31);
  }
  return call->seqs;
}

// slots is the number of sums over single pages of a sequence: for every page, head of keys and query,
// in this order. slotsBefore is those of the sequences whose rows come before row `first`.
__device__ __forceinline__ int slots(const Layer &a, const Seq &s) { return pagesOf(a, s) * s.n * a.heads; }

__device__ __forceinline__ int slotsBefore(const Layer &a, const Call *call, int first) {
  if (call->seqs == 1) return call->seq[0].first < first ? slots(a, call->seq[0]) : 0;
  int n = 0;
#pragma unroll 1
  for (int i = threadIdx.x & 31; i < call->seqs; i += 32)
    if (call->seq[i].first < first) n += slots(a, call->seq[i]);
  return __reduce_add_sync(0xffffffffu, n);
}

// apart reports whether pages are computed separately and then merged by attend_join. Otherwise a block
// takes the pages one after another.
__device__ __forceinline__ bool apart(const Layer &a, const Call *call) { return a.split && slotsBefore(a, call, 0x7fffffff) <= a.slots; }

// A piece of work: some queries of a sequence and a head of keys, over pages [from, to). Queries of a
// head of keys are counted through the rows: i is of row i/share, and its head i%share.
struct Work {
  Seq s;
  int kv, first;  // query
  int from, to;
  int skip;       // the first page of the sequence that counts
  int slot;       // of query 0 in page skip
};

// chunkOf is how many pages a piece has where pages are computed apart, so that there is about one piece
// with at most `queries` queries for each block of the grid.
__device__ __forceinline__ int chunkOf(const Layer &a, const Call *call, int queries) {
  const auto count = [&](const Seq &s) { return (s.n * a.share() + queries - 1) / queries * pagesOf(a, s); };
  int n = 0;
  if (call->seqs == 1) {
    n = count(call->seq[0]);
  } else {
#pragma unroll 1
    for (int i = threadIdx.x & 31; i < call->seqs; i += 32) n += count(call->seq[i]);
    n = __reduce_add_sync(0xffffffffu, n);
  }
  n *= a.kvHeads;
  return (n + gridDim.x - 1) / gridDim.x;
}

// work finds piece index of those with at most `queries` queries; false if there are no more. Chunk is 0
// if pages are not computed separately.
__device__ __forceinline__ bool work(const Layer &a, const Call *call, int index, int queries, int chunk, Work *w) {
  const int share = a.share();
  int before;
  const int seq = locate(call, index, &before, [&](const Seq &s) {
    return (s.n * share + queries - 1) / queries * a.kvHeads * (chunk ? (pagesOf(a, s) + chunk - 1) / chunk : 1);
  });
  if (seq >= call->seqs) return false;
  index -= before;
  w->s = call->seq[seq];
  w->kv = index % a.kvHeads;
  index /= a.kvHeads;
  w->skip = a.firstPage(w->s.pos);
  w->slot = 0;
  const int chunks = chunk ? (pagesOf(a, w->s) + chunk - 1) / chunk : 1;
  w->first = index / chunks * queries;
  // The pages that the last of the queries sees.
  w->to = a.endPage(w->s, w->s.pos + (min(w->first + queries, w->s.n * share) - 1) / share);
  if (chunk) {
    w->from = w->skip + index % chunks * chunk;
    w->to = min(w->to, w->from + chunk);
    w->slot = slotsBefore(a, call, w->s.first) + w->kv * w->s.n * share;
  } else {
    w->from = a.firstPage(w->s.pos + w->first / share);
  }
  return true;
}

// slotOf is where the sums of query i over a page go.
__device__ __forceinline__ size_t slotOf(const Layer &a, const Work &w, int page, int i) {
  return (size_t)w.slot + (size_t)(page - w.skip) * w.s.n * a.heads + i;
}

// finish writes the answer of a head of a row in a column: its sum divided by its weight, and if it has
// a gate multiplied with that one's sigmoid.
__device__ __forceinline__ float finish(const Layer &a, int row, int h, int column, float sum, float weight, float gate) {
  float y = quot(sum, weight);
  if (a.gate) y = mul(y, sigmoid32(gate));
  return a.dst[(size_t)row * a.dstStride + h * a.value + column] = y;
}
__device__ __forceinline__ float gateOf(const Layer &a, int row, int h, int column) {
  return a.gate ? a.q[(size_t)row * a.qStride + h * a.head + a.key + a.tail + column] : 0.0f;
}
