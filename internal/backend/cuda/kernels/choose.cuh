// How experts are ranked and weighed.
#pragma once
#include "bits.cuh"
#include "weight.cuh"

#define LANES 0xffffffffu

// insert ranks keys one by one, as the portable code does: for few of them, and where one is not a
// number and so has no rank.
__device__ void insert(int* chosen, int k, const float* keys, int count) {
  int n = 0;
#pragma unroll 1
  for (int i = 0; i < count; i++) {
    int j = n;
#pragma unroll 1
    while (j > 0 && keys[i] > keys[chosen[j - 1]]) j--;
    if (j == k) continue;
    n = min(n + 1, k);
#pragma unroll 1
    for (int m = n - 1; m > j; m--) chosen[m] = chosen[m - 1];
    chosen[j] = i;
  }
}

// orderOf orders numbers as integers: equal numbers, zeros of both signs included, have equal ones, and
// all that are numbers have more than 0.
__device__ __forceinline__ word orderOf(float x) {
  const word bits = __float_as_uint(add(x, 0.0f));
  return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}

// rankIn is rank with N keys of a lane in registers. A key that is taken becomes 0.
template <int N> __device__ __forceinline__ void rankIn(int* chosen, int k, const float* keys, int count) {
  const int lane = threadIdx.x & 31;
  word order[N];
#pragma unroll
  for (int i = 0; i < N; i++) order[i] = lane + 32 * i < count ? orderOf(keys[lane + 32 * i]) : 0;
#pragma unroll 1
  for (int j = 0; j < k; j++) {
    word best = 0;
    int mine = 0x7fffffff;
#pragma unroll
    for (int i = 0; i < N; i++) best = max(best, order[i]);
    const word top = __reduce_max_sync(LANES, best);
#pragma unroll
    for (int i = N - 1; i >= 0; i--)
      if (order[i] == top) mine = lane + 32 * i;
    const int at = __reduce_min_sync(LANES, mine);
#pragma unroll
    for (int i = 0; i < N; i++)
      if (lane + 32 * i == at) order[i] = 0;
    if (lane == 0) chosen[j] = at;
  }
}

// rankMany is rank for keys that are left where they are.
__device__ __forceinline__ void rankMany(int* chosen, int k, const float* keys, int count) {
  const int lane = threadIdx.x & 31;
  word taken = 0;
#pragma unroll 1
  for (int j = 0; j < k; j++) {
    word best = 0;
    int mine = 0x7fffffff;
#pragma unroll 4
    for (int i = lane; i < count; i += 32) {
      const word order = taken >> i / 32 & 1 ? 0 : orderOf(keys[i]);
      if (order > best) best = order, mine = i;
    }
    const word top = __reduce_max_sync(LANES, best);
    const int at = __reduce_min_sync(LANES, best == top ? mine : 0x7fffffff);
    if (at % 32 == lane) taken |= 1u << at / 32;
    if (lane == 0) chosen[j] = at;
  }
}

// rank writes the indices of the k highest keys, the lower first among equals. A warp computes it,
// a lane for every 32nd key; there are at most 1024, and with FEW at most 256.
template <bool FEW = false> __device__ __forceinline__ void rank(int* chosen, int k, const float* keys, int count) {
  bool odd = false;
#pragma unroll 1
  for (int i = threadIdx.x & 31; i < count; i += 32) odd |= keys[i] != keys[i];
  if (__any_sync(LANES, odd)) {
    if ((threadIdx.x & 31) == 0) insert(chosen, k, keys, count);
  } else if (FEW || count <= 256) {
    rankIn<8>(chosen, k, keys, count);
  } else {
    rankMany(chosen, k, keys, count);
  }
  __syncwarp();
}

// softmax replaces x by exp(x-top) and returns the sum, in lanes of 16. A warp computes it.
__device__ float softmax(float* x, int count) {
  const int lane = threadIdx.x & 31;
  float top = __int_as_float(0xff800000), sum = 0;
#pragma unroll 1
  for (int i = lane; i < count; i += 32)
    if (x[i] > top) top = x[i];
#pragma unroll 1
  for (int d = 16; d > 0; d /= 2) {
    const float other = __shfl_xor_sync(LANES, top, d);
    if (other > top) top = other;
  }
#pragma unroll 1
  for (int i = lane; i < count; i += 32) x[i] = exp32(sub(x[i], top));
  __syncwarp();
  if (lane < 16)
#pragma unroll 1
    for (int i = lane; i < count; i += 16) sum = add(sum, x[i]);
  sum = sum16(sum);
  return __shfl_sync(LANES, sum, 0);
}

// Pick is the usual choice of one row's experts, which kernels make by themselves: the highest of at most 256
// logits, weighed by their softmax.
struct Pick {  // shared with Go
  const float* logits;  // none: the selection was made
  int experts, topK, normalize;
  float scale;  // 0: 1
};

const int maxPicks = 32, maxPicked = 256;

// Picked is a choice in shared memory, with one place for the shared expert.
struct Picked {
  float scores[maxPicked], weights[maxPicks];
  int chosen[maxPicks + 1];

  // choose ranks the experts with a warp. Its inputs are not written by a kernel that may still run.
  __device__ __forceinline__ void choose(const Pick& c) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < maxPicked / 32; i++)
      if (lane + 32 * i < c.experts) scores[lane + 32 * i] = __ldcg(c.logits + lane + 32 * i);
    __syncwarp();
    rank<true>(chosen, c.topK, scores, c.experts);
    if (lane == 0) chosen[c.topK] = -1;
  }

  // weigh has it weigh them.
  __device__ __forceinline__ void weigh(const Pick& c) {
    const int lane = threadIdx.x & 31;
    __syncwarp();
    float total = 0;
    if (!c.normalize) total = softmax(scores, c.experts);
    if (lane < c.topK) weights[lane] = scores[chosen[lane]];
    __syncwarp();
    if (c.normalize) total = softmax(weights, c.topK);
    __syncwarp();
    if (lane < c.topK) {
      const float w = quot(weights[lane], total);
      weights[lane] = c.scale != 0 ? mul(w, c.scale) : w;
    }
    __syncwarp();
  }
};
