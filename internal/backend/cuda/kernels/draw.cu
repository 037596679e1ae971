// Draws from rows of logits, with the noise of package sample: backend.Drawer. The reasons for
// each step are there.
#include "bits.cuh"

typedef unsigned long long u64;

// How to draw from a row. inverse is 1/temperature, 0 for the most likely id; steps is how many steps of 2^-24
// octaves a unit of logit has. The filters keep most ids, the share of the weight, and levels levels. Columns from
// first on count if their block has a bit in the row's mask.
struct Draw {  // shared with Go
  u64 noise;
  double inverse, steps, share;
  int cols, most, levels, first;
};

// Many draws are one parameter. weights are topk's of the first octave.
const int drawsAtOnce = 64;
struct Draws {  // shared with Go
  Draw of[drawsAtOnce];
  u64 weights[16];
};

// Levels of package topk, and a row's part of each: ids, and their shares of the level's weight. Finished blocks
// of a row are counted, too.
const int maxLevels = 688;  // of 43 octaves
struct Bins {  // shared with Go
  u64 shares[maxLevels];
  unsigned counts[maxLevels], finished, unused;
};

const float largest = 3.402823466e+38f;

// key is a logit and its id in one integer: the higher logit is the greater key, and of equals the
// lower id. NaN and minus infinity have key 0.
__device__ __forceinline__ u64 key(float z, int id) {
  if (!(z >= -largest)) return 0;
  const unsigned b = __float_as_uint(z == 0.0f ? 0.0f : atMost(z, largest));
  return (u64)__double_as_longlong(__hiloint2double((int)(b ^ ((unsigned)((int)b >> 31) | 0x80000000u)), ~id));
}
__device__ __forceinline__ float logit(u64 key) {
  const unsigned o = (unsigned)(key >> 32);
  return __uint_as_float(o ^ ((unsigned)((int)~o >> 31) | 0x80000000u));
}

__device__ __forceinline__ double log64(double x) {  // exactmath.Log
  const u64 b = (u64)__double_as_longlong(x);
  int e = (int)(b >> 52) - 1022;
  double m = __longlong_as_double((long long)((b & 0x000fffffffffffffull) | 0x3fe0000000000000ull));
  if (m < 0.70710678118654752440) m = __dmul_rn(m, 2.0), e--;
  const double f = __dsub_rn(m, 1.0), s = __ddiv_rn(f, __dadd_rn(2.0, f)), s2 = __dmul_rn(s, s);
  double r = 2.0 / 21;
  r = __dadd_rn(__dmul_rn(r, s2), 2.0 / 19);
  r = __dadd_rn(__dmul_rn(r, s2), 2.0 / 17);
  r = __dadd_rn(__dmul_rn(r, s2), 2.0 / 15);
  r = __dadd_rn(__dmul_rn(r, s2), 2.0 / 13);
  r = __dadd_rn(__dmul_rn(r, s2), 2.0 / 11);
  r = __dadd_rn(__dmul_rn(r, s2), 2.0 / 9);
  r = __dadd_rn(__dmul_rn(r, s2), 2.0 / 7);
  r = __dadd_rn(__dmul_rn(r, s2), 2.0 / 5);
  r = __dadd_rn(__dmul_rn(r, s2), 2.0 / 3);
  r = __dmul_rn(r, s2);
  const double tail = __dsub_rn(__dmul_rn((double)e, 0x1.a39ef35793c76p-33), __dmul_rn(s, __dsub_rn(f, r)));
  return __dadd_rn(__dmul_rn((double)e, 0x1.62e42feep-1), __dadd_rn(f, tail));
}

__device__ __forceinline__ u64 noiseOf(u64 stream, int id) {
  u64 x = stream + ((u64)id + 1) * 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

__device__ __forceinline__ double gumbel(u64 h) {
  const double u = __dmul_rn(__dadd_rn((double)(h >> 12), 0.5), 0x1p-52);
  return -log64(-log64(u));
}

// stepsOf is how many steps a logit is below the highest. Beyond limit, or if it is not a number, it has no level.
const double limit = 43.0 * 16777216.0;
__device__ __forceinline__ double stepsOf(double peak, float z, double steps) {
  return __dmul_rn(__dsub_rn(peak, (double)atMost(z, largest)), steps);
}

// shareOf is 2^19 times the weight of an id relative to the weight of its level: package sample's.
__device__ __forceinline__ unsigned shareOf(double steps, int level) {
  const double x = __dmul_rn(__dsub_rn(steps, (double)(level << 20)), -0.693147180559945309417 / 16777216.0);
  return __float2uint_rz(mul(exp32(__double2float_rn(x)), 524288.0f));
}

// massOf is the weight of shares of a level.
__device__ __forceinline__ u64 massOf(const Draws &draws, int level, u64 shares) {
  return __umul64hi(shares << 23, draws.weights[level & 15] >> (level >> 4) << 21);
}

// Row is a row of logits, as far as its columns count.
struct Row {
  const float *x;
  const unsigned *mask;
  int cols, first;
  __device__ Row(const float *x, int stride, const Draw &d, const unsigned *masks, int words)
      : x(x + (size_t)blockIdx.y * stride), mask(masks + blockIdx.y * words), cols(d.cols), first(d.first) {}
  // load4 reads every 256th column from c on, four of them.
  __device__ __forceinline__ void load4(float z[4], int c) const {
#pragma unroll
    for (int i = 0; i < 4; i++, c += 256) {
      z[i] = c < cols ? x[c] : __int_as_float(0xff800000);
      if (c >= first && c < cols && !(mask[c >> 9] >> (c >> 4 & 31) & 1)) z[i] = __int_as_float(0xff800000);
    }
  }
};

// Kernel draw_top: argmax of logits, parts of a row.
// Layout: logits float32, masks of blocks of 16 columns.
// Grid: x: parts, y: rows.
// Sums: none.
//
// The greatest key of a part of a row: a block has one. It clears the row's bins, too.
extern "C" __global__ void __launch_bounds__(256) draw_top(const float *x, int stride, const __grid_constant__ Draws draws,
    const unsigned *masks, int words, u64 *tops, Bins *bins) {
  __shared__ u64 best[8];
  const int r = blockIdx.y, tid = threadIdx.x;
  release();
  await();
  const Row row(x, stride, draws.of[r], masks, words);
  for (int i = blockIdx.x * 256 + tid; i < sizeof(Bins) / 4; i += gridDim.x * 256) ((unsigned *)(bins + r))[i] = 0;
  u64 top = 0;
#pragma unroll 1
  for (int c = blockIdx.x * 1024 + tid; c < row.cols; c += gridDim.x * 1024) {
    float z[4];
    row.load4(z, c);
#pragma unroll
    for (int i = 0; i < 4; i++) top = max(top, key(z[i], c + 256 * i));
  }
#pragma unroll
  for (int w = 16; w > 0; w >>= 1) top = max(top, __shfl_xor_sync(0xffffffffu, top, w));
  if (tid % 32 == 0) best[tid / 32] = top;
  __syncthreads();
  if (tid > 0) return;
  for (int i = 1; i < 8; i++) top = max(top, best[i]);
  tops[r * gridDim.x + blockIdx.x] = top;
}

// topOf is the greatest key of all parts of a row, for every thread of a block.
__device__ __forceinline__ u64 topOf(const u64 *tops, int parts, u64 *shared) {
  if (threadIdx.x < 32) {
    u64 top = 0;
#pragma unroll 1
    for (int i = threadIdx.x; i < parts; i += 32) top = max(top, tops[i]);
#pragma unroll
    for (int w = 16; w > 0; w >>= 1) top = max(top, __shfl_xor_sync(0xffffffffu, top, w));
    if (threadIdx.x == 0) *shared = top;
  }
  __syncthreads();
  return *shared;
}

// Kernel draw_levels: histogram of probabilities by level (sixteenths of an octave), for top-k, top-p and min-p.
// Layout: logits → Bins.
// Grid: x: parts, y: rows.
// Sums: exact integers.
//
// The histogram of a row: a block counts a part, of at most 4096 columns.
extern "C" __global__ void __launch_bounds__(256) draw_levels(const float *x, int stride, const __grid_constant__ Draws draws,
    const unsigned *masks, int words, const u64 *tops, Bins *bins) {
  __shared__ u64 highest;
  __shared__ unsigned counts[maxLevels], shares[maxLevels];
  const int r = blockIdx.y, tid = threadIdx.x;
  for (int i = tid; i < maxLevels; i += 256) counts[i] = shares[i] = 0;
  release();
  await();
  const Draw &d = draws.of[r];
  const u64 top = topOf(tops + r * gridDim.x, gridDim.x, &highest);
  if (top == 0) return;
  const double peak = logit(top), steps = d.steps;
  const Row row(x, stride, d, masks, words);
#pragma unroll 1
  for (int c = blockIdx.x * 1024 + tid; c < d.cols; c += gridDim.x * 1024) {
    float z[4];
    row.load4(z, c);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const double down = stepsOf(peak, z[i], steps);
      if (!(down < limit)) continue;
      const int level = (int)down >> 20;
      atomicAdd(&counts[level], 1);
      atomicAdd(&shares[level], shareOf(down, level));
    }
  }
  __syncthreads();
  for (int i = tid; i < maxLevels; i += 256) {
    if (counts[i] == 0) continue;
    atomicAdd(&bins[r].counts[i], counts[i]);
    atomicAdd(&bins[r].shares[i], (u64)shares[i]);
  }
}

// The cut of a row's filters: the last level with accepted ids, the first level with rejected
// ids, and the weight of all ids up to the last.
struct Cut {
  int last, partial;
  u64 kept;
};

// runningSum is the sum over the threads before this one, of 256 threads; shared has 8.
template <typename T> __device__ __forceinline__ T runningSum(T x, T *shared) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  T sum = x;
#pragma unroll
  for (int w = 1; w < 32; w <<= 1) {
    const T below = __shfl_up_sync(0xffffffffu, sum, w);
    if (lane >= w) sum += below;
  }
  __syncthreads();
  if (lane == 31) shared[warp] = sum;
  __syncthreads();
  sum -= x;
  for (int i = 0; i < warp; i++) sum += shared[i];
  return sum;
}

// cut finds where the filters end: see Drawer.cut of package sample. A thread has three levels.
__device__ __forceinline__ void cut(Cut *to, const Draws &draws, const Draw &d, const Bins &bins, u64 *sums, int *counts) {
  const int first = 3 * threadIdx.x;
  int n[3], all = 0;
  u64 mass[3], mine = 0, low = ~0ull, high = ~0ull;
#pragma unroll
  for (int i = 0; i < 3; i++) {
    n[i] = first + i < maxLevels ? (int)bins.counts[first + i] : 0;
    mass[i] = first + i < maxLevels ? massOf(draws, first + i, bins.shares[first + i]) : 0;
    all += n[i];
    mine += mass[i];
  }
  if (threadIdx.x == 0) to->last = maxLevels - 1, to->partial = d.most < 0x7fffffff ? 0 : maxLevels;
  int before = runningSum(all, counts);
  if (d.share > 0.0 && d.share < 1.0) {
    u64 within = 0;
    int left = max(d.most - before, 0);
#pragma unroll
    for (int i = 0; i < 3; i++) {
      within += left >= n[i] ? mass[i] : massOf(draws, first + i, (u64)left << 19);
      left -= min(n[i], left);
    }
    const u64 upto = runningSum(within, sums) + within;
    __syncthreads();
    if (threadIdx.x == 255) sums[0] = upto;
    __syncthreads();
    const u64 total = sums[0], goal = __double2ull_rz(__dmul_rn(d.share, __ull2double_rn(total)));
    low = goal - min(goal, total >> 16);
    high = goal + (total >> 16);
  }
  u64 kept = runningSum(mine, sums);
  int last = maxLevels, partial = maxLevels;
#pragma unroll
  for (int i = 0; i < 3; i++) {
    const int level = first + i;
    before += n[i];
    kept += mass[i];
    mass[i] = kept;
    const bool least = level + 1 == d.levels && d.levels < maxLevels;
    if (before >= d.most || kept >= high || least) last = min(last, level);
    if (kept >= low || least) partial = min(partial, level);
  }
  if (last < maxLevels) atomicMin(&to->last, last);
  if (partial < maxLevels) atomicMin(&to->partial, partial);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 3; i++)
    if (first + i == to->last) to->kept = mass[i];
  __syncthreads();
}

// A candidate: of equal sums the lower id wins.
struct Sum {
  double sum;
  int id;
  __device__ void meet(double other, int otherID) {
    if (otherID >= 0 && (id < 0 || other > sum || (other == sum && otherID < id))) sum = other, id = otherID;
  }
};

// meetAll is the candidate of a block's eight warps, which its first thread gets.
__device__ __forceinline__ Sum meetAll(Sum s, double *sums, int *ids) {
#pragma unroll
  for (int w = 16; w > 0; w >>= 1) {
    const double other = __shfl_xor_sync(0xffffffffu, s.sum, w);
    const int id = __shfl_xor_sync(0xffffffffu, s.id, w);
    s.meet(other, id);
  }
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = s.sum, ids[threadIdx.x / 32] = s.id;
  __syncthreads();
  if (threadIdx.x == 0)
#pragma unroll 1
    for (int i = 1; i < 8; i++) s.meet(sums[i], ids[i]);
  return s;
}

// Kernel draw_part: Gumbel-max sampling among the levels that the filters keep.
// Layout: logits, ids of columns (optional) → id, score and exactness.
// Grid: x: parts, y: rows; the last block of a row compares the parts.
// Sums: a score is one sum in float64.
//
// The id with the highest sum of score and noise in a part of a row, and of the row: the last block to finish
// compares the parts. Few ids need their noise worked out: the most likely id's sum is at most the highest, and
// one that cannot reach it is left out.
extern "C" __global__ void __launch_bounds__(256) draw_part(const float *x, int stride, const __grid_constant__ Draws draws,
    const unsigned *masks, int words, const u64 *tops, Bins *bins, double *sums, int *ids, const float *tokens, int tokenStride, float *to, int toStride) {
  __shared__ u64 highest, runs[8];
  __shared__ double warpSums[8];
  __shared__ int warpIDs[8];
  __shared__ Cut end;
  __shared__ bool final;
  const int r = blockIdx.y, tid = threadIdx.x, parts = gridDim.x;
  release();
  await();
  const Draw &d = draws.of[r];
  const u64 top = topOf(tops + r * parts, parts, &highest);
  const int likely = (int)~(unsigned)top;
  const Row row(x, stride, d, masks, words);
  const double peak = logit(top);
  tokens += (size_t)r * tokenStride;
  const auto tokenOf = [=](int c) { return tokens ? (int)tokens[c] : c; };
  cut(&end, draws, d, bins[r], runs, warpIDs);
  Sum best = {0.0, -1};
  if (top != 0 && d.inverse == 0.0) {
    if (blockIdx.x == 0 && tid == 0) best = Sum{0.0, likely};
  } else if (top != 0) {
    const double reach = min(limit, (double)(end.last + 1) * 1048576.0);
    double least = gumbel(noiseOf(d.noise, tokenOf(likely)));
#pragma unroll 1
    for (int first = blockIdx.x * 1024 + tid; first < d.cols; first += parts * 1024) {
      float z[4];
      row.load4(z, first);
#pragma unroll 1
      for (int i = 0; i < 4; i++) {
        const int c = first + 256 * i;
        if (!(stepsOf(peak, z[i], d.steps) < reach)) continue;
        const u64 h = noiseOf(d.noise, tokenOf(c));
        const double score = __dmul_rn(__dsub_rn((double)atMost(z[i], largest), peak), d.inverse);
        if (__dadd_rn(__dmul_rn((double)(__clzll((long long)~h) + 1), 0.693147180559945309417), 1e-9) < __dsub_rn(least, score)) continue;
        best.meet(__dadd_rn(score, gumbel(h)), c);
        least = max(least, best.sum);
      }
    }
  }
  best = meetAll(best, warpSums, warpIDs);
  if (tid == 0) {
    sums[r * parts + blockIdx.x] = best.sum, ids[r * parts + blockIdx.x] = best.id;
    __threadfence();
    final = atomicAdd(&bins[r].finished, 1) + 1 == parts;
    __threadfence();
  }
  __syncthreads();
  if (!final) return;
  best = Sum{0.0, -1};
#pragma unroll 1
  for (int i = tid; i < parts; i += 256) best.meet(__ldcg(sums + r * parts + i), __ldcg(ids + r * parts + i));
  best = meetAll(best, warpSums, warpIDs);
  if (tid > 0) return;
  to += (size_t)r * toStride;
  to[0] = -1.0f;
  to[1] = to[2] = 0.0f;
  if (best.id < 0) return;
  to[0] = (float)tokenOf(best.id);
  const double down = stepsOf(peak, row.x[best.id], d.steps);
  const int level = (int)down >> 20;
  const u64 mass = massOf(draws, level, shareOf(down, level));
  to[1] = __double2float_rn(__ddiv_rn(__ull2double_rn(mass), __ull2double_rn(end.kept)));
  to[2] = level < end.partial ? 1.0f : 0.0f;
}

// highest is the greatest key of a block of 256 threads, for all of them; shared has 8.
__device__ __forceinline__ u64 highest(u64 top, u64 *shared) {
#pragma unroll
  for (int w = 16; w > 0; w >>= 1) top = max(top, __shfl_xor_sync(0xffffffffu, top, w));
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = top;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 8; i++) top = max(top, shared[i]);
  return top;
}

// Kernel best_part: top-k of logits, parts of a row.
// Layout: logits float32, masks of blocks of 16 columns → keys, descending.
// Grid: x: parts, y: rows.
// Sums: none.
//
// The n greatest keys of a part of a row, of at most 4096 columns: 16 of each thread.
extern "C" __global__ void __launch_bounds__(256) best_part(const float *x, int stride, const __grid_constant__ Draws draws,
    const unsigned *masks, int words, u64 *tops, int n) {
  __shared__ u64 shared[8];
  release();
  await();
  const Row row(x, stride, draws.of[blockIdx.y], masks, words);
  u64 keys[16], mine = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int c = (blockIdx.x + i * gridDim.x) * 1024 + threadIdx.x;
    float z[4];
    row.load4(z, c);
#pragma unroll
    for (int j = 0; j < 4; j++) keys[4 * i + j] = key(z[j], c + 256 * j), mine = max(mine, keys[4 * i + j]);
  }
  tops += ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * n;
#pragma unroll 1
  for (int k = 0; k < n; k++) {
    const u64 top = highest(mine, shared);
    if (threadIdx.x == 0) tops[k] = top;
    if (mine != top || top == 0) continue;
    mine = 0;
#pragma unroll
    for (int i = 0; i < 16; i++) {
      if (keys[i] == top) keys[i] = 0;
      mine = max(mine, keys[i]);
    }
  }
}

// Kernel best_row: merges the parts of a row's top-k.
// Layout: keys → columns, ascending, and their logits.
// Grid: x: rows.
// Sums: none.
//
// A thread has the keys of one part, which descend. Places without a key repeat the lowest column.
extern "C" __global__ void __launch_bounds__(256) best_row(const float *x, int stride, const u64 *tops, int parts, int n,
    float *ids, int idStride, float *best, int bestStride) {
  __shared__ u64 shared[8];
  __shared__ int found[256];
  const int r = blockIdx.x, tid = threadIdx.x;
  release();
  await();
  tops += ((size_t)r * parts + tid) * n;
  u64 mine = tid < parts ? tops[0] : 0;
  int at = 0, count = 0;
#pragma unroll 1
  for (; count < n; count++) {
    const u64 top = highest(mine, shared);
    if (top == 0) break;
    if (tid == 0) found[count] = (int)~(unsigned)top;
    if (mine == top) mine = ++at < n ? tops[at] : 0;
  }
  __syncthreads();
  if (tid >= n) return;
  int place = tid, lowest = count > 0 ? 0x7fffffff : 0;
  if (tid < count) place = 0;
#pragma unroll 1
  for (int i = 0; i < count; i++) {
    lowest = min(lowest, found[i]);
    if (tid < count && found[i] < found[tid]) place++;
  }
  const int id = tid < count ? found[tid] : lowest;
  ids[(size_t)r * idStride + place] = (float)id;
  best[(size_t)r * bestStride + place] = tid < count ? x[(size_t)r * stride + id] : __int_as_float(0xff800000);
}

// Kernel score: products of three vectors, added to the logits of candidates.
// Layout: rows float32.
// Grid: x: rows; a thread per candidate.
// Sums: in order, float32.
extern "C" __global__ void __launch_bounds__(256) score(float *scores, int stride, const float *left, int leftStride, const float *mid,
    int midStride, const float *right, int rightStride, int cols) {
  const int r = blockIdx.x, c = threadIdx.x;
  release();
  await();
  left += (size_t)r * leftStride;
  mid += (size_t)r * midStride;
  right += ((size_t)r * blockDim.x + c) * rightStride;
  float sum = 0.0f;
#pragma unroll 8
  for (int i = 0; i < cols; i++) sum = add(sum, mul(mul(left[i], mid[i]), right[i]));
  scores[(size_t)r * stride + c] = add(scores[(size_t)r * stride + c], sum);
}

// Kernel copy_each: batched copy of rows of equal length.
// Layout: rows of 4-byte words.
// Grid: x: 1024 words, y: rows.
// Sums: none.
//
// Copies of rows, all as long: backend.Copier. A block has a part of one of them.
struct CopyRow {  // shared with Go
  unsigned* to;
  const unsigned* from;
};
struct Copies {  // shared with Go
  CopyRow of[64];
};
extern "C" __global__ void __launch_bounds__(256) copy_each(const __grid_constant__ Copies c, int words) {
  release();
  await();
  unsigned* to = c.of[blockIdx.y].to;
  const unsigned* from = c.of[blockIdx.y].from;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int at = blockIdx.x * 1024 + i * 256 + threadIdx.x;
    if (at < words) to[at] = from[at];
  }
}
