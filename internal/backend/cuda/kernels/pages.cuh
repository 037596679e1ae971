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
  float top[N], weight[N];  // of all pages so far
  float old[N], more[N];    // factors of what was there, and of what the page adds
  int from[N], to[N];       // positions of the page that it sees
  int first[N];                        // whether the page is the first that the query sees
};

// fold adds halves of the lanes onto halves, which are W threads apart. Of two queries a thread keeps
// the one that it will finish.
template <int W, int N>
__device__ __forceinline__ void fold(float (&sum)[2][N][2], int t) {
  const int half = W * N / 8;
  const bool upper = t & W;
#pragma unroll
  for (int q = 0; q < half; q++)
#pragma unroll
    for (int k = 0; k < 2; k++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const float low = sum[k][q][e], high = sum[k][q + half][e];
        sum[k][q][e] = add(upper ? high : low, __shfl_xor_sync(0xffffffffu, upper ? low : high, W));
      }
}

// dots has eight neighboring threads compute scores of all queries with the keys at n0 and n0+step, rows
// of d numbers, of which those before end count: a thread has two of the sixteen lanes. If there are
// scores already, these are added.
template <int N>
__device__ __forceinline__ void dots(const unsigned char *rows, bool half, int d, const float *queries, int stride, int n, Queries<N> *qs, int n0, int step, int end, float scale, bool more) {
  const int t = threadIdx.x & 7, size = half ? 2 : 4, bytes = rowBytes(d, size);
  const unsigned char *k0 = rows + min(n0, end - 1) * bytes, *k1 = rows + min(n0 + step, end - 1) * bytes;
  float sum[2][N][2];
#pragma unroll
  for (int q = 0; q < N; q++) sum[0][q][0] = sum[0][q][1] = sum[1][q][0] = sum[1][q][1] = 0.0f;
#pragma unroll 2
  for (int j = 0; j < d; j += 16) {
    const int i = j + 2 * t;
    if (i >= d) continue;
    const float2 x = two(k0 + i * size, half), y = two(k1 + i * size, half);
#pragma unroll
    for (int g = 0; g < N; g += 4) {
      if (g >= n) continue;
#pragma unroll
      for (int q = g; q < g + 4; q++) {
        const float2 z = *(const float2 *)(queries + q * stride + i);
        sum[0][q][0] = fused(z.x, x.x, sum[0][q][0]);
        sum[1][q][0] = fused(z.x, y.x, sum[1][q][0]);
        sum[0][q][1] = fused(z.y, x.y, sum[0][q][1]);
        sum[1][q][1] = fused(z.y, y.y, sum[1][q][1]);
      }
    }
  }
  fold<4, N>(sum, t);
  fold<2, N>(sum, t);
  fold<1, N>(sum, t);
#pragma unroll
  for (int k = 0; k < 2; k++)
#pragma unroll
    for (int q = 0; q < N / 8; q++) {
      const int key = n0 + k * step;
      const float s = mul(add(sum[k][q][0], sum[k][q][1]), scale);
      float *to = &qs->weights[min(key, end - 1)][N / 8 * t + q];
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
