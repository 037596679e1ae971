// Pages of float32 and of half precision: scores of queries with their keys, and softmax.
#pragma once
#include "attend.cuh"
#include <cuda_fp16.h>

// Rows of numbers in shared memory: rows of a page, each of an even number of columns and then some
// bytes, so that the same column of four neighboring rows lies in different banks.
__device__ __forceinline__ int rowBytes(int d, int size) { return (d + 1) / 2 * 2 * size + 16 * size; }

// two is a pair of numbers.
__device__ __forceinline__ float2 two(const unsigned char *p, bool half) {
  return half ? __half22float2(*(const __half2 *)p) : *(const float2 *)p;
}

// What a block keeps of its queries.
template <int N>
struct __align__(16) Queries {
  float weights[pageTokens][N];  // scores, then exp(score-top)
  float top[N], weight[N];       // of all pages so far
  float old[N], more[N];         // factors of what was there, and of what the page adds
  int from[N], to[N];            // positions of the page that it sees
  int first[N];                  // whether the page is the first that the query sees
};

// fold adds halves of the lanes onto halves, which are W threads apart. Of two queries a thread keeps
// the one that it will finish.
template <int W, int K, int N>
__device__ __forceinline__ void fold(float (&sum)[K][N][2], int t) {
  const int half = W * N / 8;
  const bool upper = t & W;
#pragma unroll
  for (int q = 0; q < half; q++)
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const float low = sum[k][q][e], high = sum[k][q + half][e];
        sum[k][q][e] = add(upper ? high : low, __shfl_xor_sync(0xffffffffu, upper ? low : high, W));
      }
}

// dots has eight neighboring threads compute scores of N of the queries, from q0 on, with K keys from n0
// on, step apart, rows of d numbers, of which those before end count: a thread has two of the sixteen
// lanes. Of the queries n count. If there are scores already, these are added. WHOLE: d is a multiple of
// sixteen.
template <int K, int N, bool WHOLE, int ALL>
__device__ __forceinline__ void dots(const unsigned char *rows, bool half, int d, const float *queries, int stride, int n, Queries<ALL> *qs, int q0, int n0, int step, int end, float scale, bool more) {
  const int t = threadIdx.x & 7, size = half ? 2 : 4, bytes = rowBytes(d, size);
  const unsigned char *at[K];
  float sum[K][N][2];
#pragma unroll
  for (int k = 0; k < K; k++) {
    at[k] = rows + min(n0 + k * step, end - 1) * bytes;
#pragma unroll
    for (int q = 0; q < N; q++) sum[k][q][0] = sum[k][q][1] = 0.0f;
  }
  queries += q0 * stride;
#pragma unroll (WHOLE ? 4 : 2)
  for (int j = 0; j < d; j += 16) {
    const int i = j + 2 * t;
    if (!WHOLE && i >= d) continue;
    float2 x[K];
#pragma unroll
    for (int k = 0; k < K; k++) x[k] = two(at[k] + i * size, half);
#pragma unroll
    for (int g = 0; g < N; g += 2) {
      if (q0 + g >= n) continue;
#pragma unroll
      for (int q = g; q < g + 2; q++) {
        const float2 z = *(const float2 *)(queries + q * stride + i);
#pragma unroll
        for (int k = 0; k < K; k++) sum[k][q][0] = fused(z.x, x[k].x, sum[k][q][0]), sum[k][q][1] = fused(z.y, x[k].y, sum[k][q][1]);
      }
    }
  }
  fold<4, K, N>(sum, t);
  fold<2, K, N>(sum, t);
  fold<1, K, N>(sum, t);
#pragma unroll
  for (int k = 0; k < K; k++)
#pragma unroll
    for (int q = 0; q < N / 8; q++) {
      const int key = n0 + k * step;
      const float s = mul(add(sum[k][q][0], sum[k][q][1]), scale);
      float *to = &qs->weights[min(key, end - 1)][q0 + N / 8 * t + q];
      if (key < end) *to = more ? add(*to, s) : s;
    }
}

// softmax has a warp replace a query's scores of a page by weights, and add them to what it has of the
// pages before, or if the pages are computed apart, leave the page's own.
template <int N>
__device__ __forceinline__ void softmax(Queries<N> *qs, int q, bool first, float2 *now) {
  const int lane = threadIdx.x & 31;
  const int from = qs->from[q], to = qs->to[q], a = from + lane, b = a + 32;
  const float minus = __int_as_float(0xff800000);
  const float x = a < to ? qs->weights[a][q] : minus, y = b < to ? qs->weights[b][q] : minus;
  float top = fmaxf(x, y);
#pragma unroll
  for (int w = 16; w > 0; w >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, w));
  const float ex = a < to ? expDown(sub(x, top)) : 0.0f, ey = b < to ? expDown(sub(y, top)) : 0.0f;
  if (a < to) qs->weights[a][q] = ex;
  if (b < to) qs->weights[b][q] = ey;
  // Lane l of the sum has positions l, l+16, l+32 and l+48 of those seen, in this order.
  const float up = __shfl_xor_sync(0xffffffffu, ex, 16), upper = __shfl_xor_sync(0xffffffffu, ey, 16);
  const float weight = sum16(lane < 16 ? add(add(add(ex, up), ey), upper) : 0.0f);
  if (lane > 0) return;
  *now = make_float2(top, weight);
  if (from == to) return;
  if (first) {
    qs->top[q] = top, qs->weight[q] = weight, qs->old[q] = 0.0f, qs->more[q] = 1.0f;
    return;
  }
  const float before = qs->top[q], all = top > before ? top : before;
  const float old = expDown(sub(before, all)), more = expDown(sub(top, all));
  qs->old[q] = old, qs->more[q] = more, qs->top[q] = all;
  qs->weight[q] = fused(weight, more, mul(qs->weight[q], old));
}

// weigh adds up a page's values in two columns, at `at` in rows of so many bytes, for Q queries from q0
// on, of n in all.
template <int Q, int N>
__device__ __forceinline__ void weigh(float (&sum)[Q][2], const Queries<N> *qs, int q0, int n, const unsigned char *at, int bytes, bool half) {
  int from[Q], to[Q], begin = qs->from[q0], end = qs->to[q0];
  bool alike = true;
#pragma unroll
  for (int q = 0; q < Q; q++) {
    sum[q][0] = sum[q][1] = 0.0f;
    from[q] = qs->from[q0 + q], to[q] = qs->to[q0 + q];
    if (q0 + q >= n) continue;
    alike = alike && from[q] == begin && to[q] == end;
    begin = min(begin, from[q]), end = max(end, to[q]);
  }
  // Only where rows see different parts of the page has each query to be asked.
  if (alike) {
#pragma unroll 4
    for (int j = begin; j < end; j++) {
      const float2 x = two(at + j * bytes, half);
      __align__(16) float e[Q];
#pragma unroll
      for (int q = 0; q < Q; q += Q < 4 ? 2 : 4) {
        if (Q < 4) *(float2 *)(e + q) = *(const float2 *)&qs->weights[j][q0 + q];
        else *(float4 *)(e + q) = *(const float4 *)&qs->weights[j][q0 + q];
      }
#pragma unroll
      for (int q = 0; q < Q; q++) sum[q][0] = fused(e[q], x.x, sum[q][0]), sum[q][1] = fused(e[q], x.y, sum[q][1]);
    }
    return;
  }
#pragma unroll 2
  for (int j = begin; j < end; j++) {
    const float2 x = two(at + j * bytes, half);
#pragma unroll
    for (int q = 0; q < Q; q++) {
      const float e = qs->weights[j][q0 + q], more = fused(e, x.x, sum[q][0]), other = fused(e, x.y, sum[q][1]);
      const bool sees = j >= from[q] && j < to[q];
      sum[q][0] = sees ? more : sum[q][0], sum[q][1] = sees ? other : sum[q][1];
    }
  }
}
