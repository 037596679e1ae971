// Pages of float32 and of half precision: scores of queries with their keys, softmax, and sums of values.
#pragma once
#include "async.cuh"
#include "attend.cuh"
#include <cuda_fp16.h>

// Rows of numbers in shared memory: rows of a page, each of an even number of columns and padding,
// so that the same column of four neighboring rows is in different banks.
__device__ __forceinline__ int rowBytes(int d, int size) { return (d + 1) / 2 * 2 * size + 16 * size; }

// two is a pair of numbers, of T in memory: float or __half.
template <typename T> __device__ __forceinline__ float2 two(const unsigned char *p);
template <> __device__ __forceinline__ float2 two<float>(const unsigned char *p) { return *(const float2 *)p; }
template <> __device__ __forceinline__ float2 two<__half>(const unsigned char *p) { return __half22float2(*(const __half2 *)p); }

// A block's state of its queries.
template <int N>
struct __align__(16) Queries {
  float weights[pageTokens][N];  // scores, then exp(score-top)
  float top[N], weight[N];       // of all pages so far
  float old[N], more[N];         // factors of the old sum, and of the page's
  int from[N], to[N];            // positions of the page that it sees
  int first[N];                  // whether the page is the first that the query sees
};

// fold adds halves of the lanes onto halves, which are W threads apart. Of two queries a thread keeps
// the one that it will finish; if only one is left, both threads do.
template <int W, int K, int N>
__device__ __forceinline__ void fold(float (&sum)[K][N][2], int t) {
  const int half = W * N / 8;
  const bool upper = t & W;
#pragma unroll
  for (int q = 0; q < (half ? half : 1); q++)
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const float low = sum[k][q][e], high = half ? sum[k][q + half][e] : low;
        sum[k][q][e] = add(half && upper ? high : low, __shfl_xor_sync(0xffffffffu, half && upper ? low : high, W));
      }
}

// dots computes scores with eight neighboring threads: of N queries, from q0 on, with K keys from n0
// on, step apart, rows of d numbers, of which those before end count: a thread has two of the sixteen
// lanes. n of the queries count. They are added to existing scores. WHOLE: d is a multiple of
// sixteen.
template <typename T, int K, int N, bool WHOLE, int ALL>
__device__ __forceinline__ void dots(const unsigned char *rows, int d, const float *queries, int stride, int n, Queries<ALL> *qs, int q0, int n0, int step, int end, float scale, bool more) {
  const int t = threadIdx.x & 7, size = sizeof(T), bytes = rowBytes(d, size);
  const unsigned char *at[K];
  float sum[K][N][2];
#pragma unroll
  for (int k = 0; k < K; k++) {
    at[k] = rows + min(n0 + k * step, end - 1) * bytes;
#pragma unroll
    for (int q = 0; q < N; q++) sum[k][q][0] = sum[k][q][1] = 0.0f;
  }
  queries += q0 * stride;
#pragma unroll (WHOLE && N < 8 ? 4 : 2)
  for (int j = 0; j < d; j += 16) {
    const int i = j + 2 * t;
    if (!WHOLE && i >= d) continue;
    float2 x[K];
#pragma unroll
    for (int k = 0; k < K; k++) x[k] = two<T>(at[k] + i * size);
#pragma unroll
    for (int g = 0; g < N; g += 4) {
      if (g > 0 && q0 + g >= n) continue;
#pragma unroll
      for (int q = g; q < (g + 4 < N ? g + 4 : N); q++) {
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
    for (int q = 0; q < (N < 8 ? 1 : N / 8); q++) {
      const int key = n0 + k * step;
      const float s = mul(add(sum[k][q][0], sum[k][q][1]), scale);
      float *to = &qs->weights[min(key, end - 1)][q0 + t * N / 8 + q];
      if (key < end && (N >= 8 || t % (8 / N) == 0)) *to = more ? add(*to, s) : s;
    }
}

// softmax replaces a query's scores of a page by weights, with a warp, and adds them to the sums of
// earlier pages, or if the pages are computed separately, keeps the page's own.
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

// weigh adds up a page's values in two columns, at `at` in rows of bytes bytes, for Q queries, 1, 2, or
// a multiple of four, from q0 on, of n in all.
template <typename T, int Q, int N>
__device__ __forceinline__ void weigh(float (&sum)[Q][2], const Queries<N> *qs, int q0, int n, const unsigned char *at, int bytes) {
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
  // Queries are checked one by one only if rows see different parts of the page.
  if (alike) {
#pragma unroll 4
    for (int j = begin; j < end; j++) {
      const float2 x = two<T>(at + j * bytes);
      __align__(16) float e[Q];
#pragma unroll
      for (int q = 0; q < Q; q += Q < 4 ? Q : 4) {
        if (Q == 1) e[0] = qs->weights[j][q0];
        else if (Q == 2) *(float2 *)(e + q) = *(const float2 *)&qs->weights[j][q0 + q];
        else *(float4 *)(e + q) = *(const float4 *)&qs->weights[j][q0 + q];
      }
#pragma unroll
      for (int q = 0; q < Q; q++) sum[q][0] = fused(e[q], x.x, sum[q][0]), sum[q][1] = fused(e[q], x.y, sum[q][1]);
    }
    return;
  }
#pragma unroll 2
  for (int j = begin; j < end; j++) {
    const float2 x = two<T>(at + j * bytes);
#pragma unroll
    for (int q = 0; q < Q; q++) {
      const float e = qs->weights[j][q0 + q], more = fused(e, x.x, sum[q][0]), other = fused(e, x.y, sum[q][1]);
      const bool sees = j >= from[q] && j < to[q];
      sum[q][0] = sees ? more : sum[q][0], sum[q][1] = sees ? other : sum[q][1];
    }
  }
}

// bring copies pageTokens rows of d numbers to shared memory. Copies run until arrive and a barrier. The
// padding of a pair is negative zero: adding its product with zero changes nothing.
__device__ __forceinline__ void bring(unsigned char *to, const unsigned char *from, int d, int size) {
  const int bytes = d * size, step = rowBytes(d, size);
  if (bytes % 16 == 0) {  // a warp has a row
#pragma unroll 4
    for (int r = threadIdx.x / 32; r < pageTokens; r += blockDim.x / 32)
#pragma unroll 1
      for (int c = (threadIdx.x & 31) * 16; c < bytes; c += 32 * 16) copy16(to + r * step + c, from + r * bytes + c);
    return;
  }
  const int even = (d + 1) / 2 * 2;
#pragma unroll 1
  for (int i = threadIdx.x; i < pageTokens * even; i += blockDim.x) {
    const int r = i / even, c = i % even, at = r * d + c;
    if (size == 2) *(unsigned short *)(to + r * step + 2 * c) = c < d ? ((const unsigned short *)from)[at] : 0x8000;
    else *(unsigned *)(to + r * step + 4 * c) = c < d ? ((const unsigned *)from)[at] : 0x80000000u;
  }
}

const int blockQueries = 16;  // of a piece of work

// Pages of floats. A block of eight warps has up to blockQueries queries of a head of keys, a thread PARTS
// times two columns of the answers of half of them.
template <typename T, int PARTS>
__device__ __forceinline__ void floats(const Call *call, const Layer &a) {
  extern __shared__ __align__(16) float shared[];
  const int many = blockQueries / 2;
  const int tid = threadIdx.x, warp = uniform(tid / 32), share = a.share(), evenKey = (a.key + 1) & ~1, width = evenKey + ((a.tail + 1) & ~1);
  const int stride = max(width, (a.value + 1) & ~1), q0 = warp / 4 * many, c0 = 2 * (tid % 128);
  const int size = sizeof(T), valueBytes = rowBytes(a.value, size);
  Queries<blockQueries> *qs = (Queries<blockQueries> *)shared;
  float *queries = shared + sizeof(*qs) / 4;  // [blockQueries][stride]: both parts, of even width
  unsigned char *keys = (unsigned char *)(queries + blockQueries * stride);  // of the page
  unsigned char *second = keys + pageTokens * rowBytes(a.key, size);         // values, or second parts
  const unsigned char *values = a.latent ? keys : second;
  release();
  await();
  const bool split = apart(a, call);
  const int chunk = split ? chunkOf(a, call, blockQueries) : 0;
  Work w;
#pragma unroll 1
  for (int index = blockIdx.x; work(a, call, index, blockQueries, chunk, &w); index += gridDim.x) {
    const int n = uniform(min(blockQueries, w.s.n * share - w.first));
    __syncthreads();
#pragma unroll 1
    for (int q = warp; q < blockQueries; q += 8) {  // a warp has a query
      const int j = w.first + q;
      const float *from = a.floats + ((size_t)(w.s.first + j / share) * a.heads + w.kv * share + j % share) * (a.key + a.tail);
#pragma unroll 4
      for (int k = tid & 31; k < width; k += 32) {
        const int at = k < evenKey ? k : a.key + k - evenKey;
        const bool there = q < n && (k < evenKey ? k < a.key : at < a.key + a.tail);
        queries[q * stride + k] = there ? from[at] : 0.0f;
      }
    }
    float out[PARTS][many][2];
    // Part 0 of a page is loaded when that of the previous page is done, and so is part 1.
    auto ask = [&](int p, int which) {
      if (p < w.to) {
        const int wide = which == 0 ? a.key : a.latent ? a.tail : a.value;
        if (wide > 0) bring(which ? second : keys, a.rows(call->page[w.s.pages + p], which, w.kv), wide, size);
      }
      commit();
    };
#pragma unroll 1
    for (int which = 0; which < 2; which++) ask(w.from, which);
    const int end = uniform(w.to);
#pragma unroll 1
    for (int p = uniform(w.from); p < end; p++) {
      if (a.tail) arrive<0>();
      else arrive<1>();
      if (tid < blockQueries) {
        const int pos = w.s.pos + (w.first + tid) / share;
        const int2 sees = a.sees(w.s, pos, p);
        qs->from[tid] = tid < n ? sees.x : 0;
        qs->to[tid] = tid < n ? sees.y : 0;
        qs->first[tid] = p == a.firstPage(pos);
      }
      __syncthreads();
      if (q0 < n)
#pragma unroll 1
        for (int which = 0; which < (a.tail ? 2 : 1); which++)
          dots<T, 4, many, false>(which ? second : keys, which ? a.tail : a.key, queries + which * evenKey, stride, n, qs, q0, tid % 128 / 8, pageTokens / 4, pageTokens, a.scale, which);
      __syncthreads();
      if (!a.latent) ask(p + 1, 0);
#pragma unroll 1
      for (int q = warp; q < n; q += 8) {
        float2 now;
        const int j = w.first + q;
        softmax(qs, q, split || qs->first[q], &now);
        if (split && tid % 32 == 0) a.tops[slotOf(a, w, p, j)] = make_float4(now.x, now.y, 0.0f, 0.0f);
      }
      if (!a.latent) arrive<1>();
      __syncthreads();
#pragma unroll
      for (int part = 0; part < PARTS; part++) {
        const int c = c0 + 256 * part;
        if (c >= a.value || q0 >= n) continue;
        float sum[many][2];
        weigh<T>(sum, qs, q0, n, values + c * size, valueBytes);
        const bool pair = c + 1 < a.value;
        float *sums = a.sums + slotOf(a, w, p, w.first + q0) * a.columns() + c;
#pragma unroll
        for (int q = 0; q < many; q++, sums += a.columns()) {
          if (qs->from[q0 + q] == qs->to[q0 + q]) continue;
          if (split) {
            sums[0] = sum[q][0];
            if (pair) sums[1] = sum[q][1];
          } else {
            const float old = qs->old[q0 + q], more = qs->more[q0 + q];
            const bool first = qs->first[q0 + q];
            out[part][q][0] = first ? sum[q][0] : fused(sum[q][0], more, mul(out[part][q][0], old));
            out[part][q][1] = first ? sum[q][1] : fused(sum[q][1], more, mul(out[part][q][1], old));
          }
        }
      }
      __syncthreads();
      if (a.latent) ask(p + 1, 0);
      ask(p + 1, 1);
    }
    arrive<0>();
    if (split || q0 >= n) continue;
    // The sums are passed through the memory of the queries, so that the code after it exists few times.
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
      const int c = c0 + 256 * part;
      if (c >= a.value) continue;
#pragma unroll
      for (int q = 0; q < many; q++) *(float2 *)(queries + (q0 + q) * stride + c) = make_float2(out[part][q][0], out[part][q][1]);
#pragma unroll 2
      for (int i = 2 * q0; i < 2 * min(n, q0 + many); i++) {
        const int q = i / 2, j = w.first + q, row = w.s.first + j / share, h = w.kv * share + j % share, col = c + i % 2;
        if (col < a.value) finish(a, row, h, col, queries[q * stride + col], qs->weight[q], gateOf(a, row, h, col));
      }
    }
  }
}
