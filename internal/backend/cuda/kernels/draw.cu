// Draws from rows of logits, with the noise of package sample: backend.Drawer. The reasons for
// each step are there.
#include "bits.cuh"

// How to draw from a row. inverse is 1/temperature, 0 for the most likely id; steps is how many levels
// a unit of logit has.
struct Draw {
  unsigned long long noise;
  double inverse, steps;
  int cols, unused;
};

// Many draws are one parameter.
const int drawsAtOnce = 64;
struct Draws {
  Draw of[drawsAtOnce];
};

typedef unsigned long long u64;

// key is a logit and its id in one integer: the higher logit is the greater key, and of equals the
// lower id. What is not a number, or minus infinity, has key 0.
__device__ __forceinline__ u64 key(float z, int id) {
  if (!(z >= -3.402823466e+38f)) return 0;
  const unsigned b = __float_as_uint(z == 0.0f ? 0.0f : atMost(z, 3.402823466e+38f));
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

// The greatest key of a part of a row: a block has one.
extern "C" __global__ void __launch_bounds__(256) draw_top(const float *x, int stride, const __grid_constant__ Draws draws, u64 *tops) {
  __shared__ u64 best[8];
  const int r = blockIdx.y, tid = threadIdx.x;
  release();
  await();
  const int cols = draws.of[r].cols;
  const float *row = x + (size_t)r * stride;
  u64 top = 0;
#pragma unroll 4
  for (int c = blockIdx.x * 256 + tid; c < cols; c += gridDim.x * 256) top = max(top, key(row[c], c));
#pragma unroll
  for (int w = 16; w > 0; w >>= 1) top = max(top, __shfl_xor_sync(0xffffffffu, top, w));
  if (tid % 32 == 0) best[tid / 32] = top;
  __syncthreads();
  if (tid > 0) return;
  for (int i = 1; i < 8; i++) top = max(top, best[i]);
  tops[r * gridDim.x + blockIdx.x] = top;
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

// The id with the highest sum of score and noise in a part of a row. Few ids need their noise worked
// out: the most likely id's sum is at most the highest, and one that cannot reach it is left out.
extern "C" __global__ void __launch_bounds__(256) draw_part(const float *x, int stride, const __grid_constant__ Draws draws, const u64 *tops,
    double *sums, int *ids) {
  __shared__ u64 highest;
  __shared__ double warpSums[8];
  __shared__ int warpIDs[8];
  const int r = blockIdx.y, tid = threadIdx.x, parts = gridDim.x;
  release();
  await();
  const Draw &d = draws.of[r];
  if (tid < 32) {
    u64 top = 0;
#pragma unroll 1
    for (int i = tid; i < parts; i += 32) top = max(top, tops[r * parts + i]);
#pragma unroll
    for (int w = 16; w > 0; w >>= 1) top = max(top, __shfl_xor_sync(0xffffffffu, top, w));
    if (tid == 0) highest = top;
  }
  __syncthreads();
  const u64 top = highest;
  const int likely = (int)~(unsigned)top;
  Sum best = {0.0, -1};
  if (top != 0 && d.inverse == 0.0) {
    if (blockIdx.x == 0 && tid == 0) best = Sum{0.0, likely};
  } else if (top != 0) {
    const double peak = logit(top), least = gumbel(noiseOf(d.noise, likely));
    const float *row = x + (size_t)r * stride;
#pragma unroll 1
    for (int c = blockIdx.x * 256 + tid; c < d.cols; c += parts * 256) {
      const double z = atMost(row[c], 3.402823466e+38f);
      if (!(__dmul_rn(__dsub_rn(peak, z), d.steps) < 43.0 * 16777216.0)) continue;  // impossible, or no number
      const u64 h = noiseOf(d.noise, c);
      const double score = __dmul_rn(__dsub_rn(z, peak), d.inverse);
      if (__dadd_rn(__dmul_rn((double)(__clzll((long long)~h) + 1), 0.693147180559945309417), 1e-9) < __dsub_rn(least, score)) continue;
      best.meet(__dadd_rn(score, gumbel(h)), c);
    }
  }
  best = meetAll(best, warpSums, warpIDs);
  if (tid == 0) sums[r * parts + blockIdx.x] = best.sum, ids[r * parts + blockIdx.x] = best.id;
}

// The id with the highest sum of all parts, as a number: a block has a row.
extern "C" __global__ void __launch_bounds__(256) draw_best(float *to, int stride, const double *sums, const int *ids, int parts) {
  __shared__ double warpSums[8];
  __shared__ int warpIDs[8];
  const int r = blockIdx.x;
  release();
  await();
  Sum best = {0.0, -1};
#pragma unroll 1
  for (int i = threadIdx.x; i < parts; i += 256) best.meet(sums[r * parts + i], ids[r * parts + i]);
  best = meetAll(best, warpSums, warpIDs);
  if (threadIdx.x == 0) to[(size_t)r * stride] = (float)best.id;
}

// Copies of rows, all as long: backend.Copier. A block has a part of one of them.
struct Copies {
  struct {
    unsigned* to;
    const unsigned* from;
  } of[64];
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
