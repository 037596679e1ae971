// Attention of few rows over pages of float32 and of half precision: norms, rotation and the new rows of
// pages in the kernel that reads them. A block has some queries of a head of keys, over some
// pages. Each norms its queries and the keys that are new in its pages by itself: that is less than a
// launch, and the pages are on their way meanwhile, since no kernel of this pass writes their older
// rows. Keys and values are at most 256 numbers in whole pieces of 16 bytes, keys in whole warps.
#pragma once
#include "async.cuh"
#include "pages.cuh"

// ready has a warp norm and rotate a head of row r: n numbers, from x to shared memory.
__device__ __forceinline__ void ready(const Layer &a, const float *x, const float *gain, int r, float *y) {
  const int lane = threadIdx.x & 31;
  const float *turns = a.rotation + (size_t)2 * r * a.pairs;
  const float cos0 = lane < a.pairs ? turns[lane] : 0.0f, sin0 = lane < a.pairs ? turns[a.pairs + lane] : 0.0f;
  float v[8], by[8], sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 8; k++) v[k] = 32 * k < a.key ? x[lane + 32 * k] : 0.0f, by[k] = gain && 32 * k < a.key ? gain[lane + 32 * k] : 0.0f;
  if (gain) {
    // Lane l of the sum has numbers l, l+16, and so on, alternating between two threads.
#pragma unroll
    for (int k = 0; k < 8; k++) {
      if (32 * k >= a.key) break;
      const float other = __shfl_xor_sync(0xffffffffu, v[k], 16), low = lane < 16 ? v[k] : other, high = lane < 16 ? other : v[k];
      sum = fused(high, high, fused(low, low, sum));
    }
    const float scale = rsqrt32(add(quot(sum16(sum), (float)a.key), a.eps));
#pragma unroll
    for (int k = 0; k < 8; k++) v[k] = mul(mul(v[k], scale), by[k]);
  }
#pragma unroll
  for (int k = 0; k < 8; k++)
    if (32 * k < a.key) y[lane + 32 * k] = v[k];
  __syncwarp();
#pragma unroll 1
  for (int j = lane; j < a.pairs; j += 32) {
    float *p = y + (a.interleaved ? 2 * j : j), *q = a.interleaved ? p + 1 : p + a.pairs;
    const float cos = j == lane ? cos0 : turns[j], sin = j == lane ? sin0 : turns[a.pairs + j], u = *p, w = *q;
    *p = fused(u, cos, -mul(w, sin));
    *q = fused(w, cos, mul(u, sin));
  }
  __syncwarp();
}

// append has a warp write n numbers as a row: to shared memory, and where it is the one that does to
// the page.
template <typename T>
__device__ __forceinline__ void append(unsigned char *row, unsigned char *page, const float *x, int n) {
#pragma unroll 2
  for (int c = threadIdx.x & 31; c < n; c += 32) {
    const T v = (T)x[c];  // rounded to nearest
    ((T *)row)[c] = v;
    if (page) ((T *)page)[c] = v;
  }
}

// pieces does the share of the work of a block of WARPS warps, in pieces of up to N queries. Values have at most 2*W numbers.
template <typename T, int N, int WARPS, int W>
__device__ __forceinline__ void pieces(const Call *call, const Layer &a, bool split, int chunk) {
  extern __shared__ __align__(16) float shared[];
  const int tid = threadIdx.x, lane = tid & 31, warp = uniform(tid / 32), share = a.share(), stride = max(a.key, a.value);
  const int size = sizeof(T), keyBytes = rowBytes(a.key, size), valueBytes = rowBytes(a.value, size);
  Queries<N> *qs = (Queries<N> *)shared;
  float *queries = shared + sizeof(*qs) / 4;        // [N][stride]
  float *fresh = queries + N * stride;              // [WARPS][stride]: new keys, one for each warp
  unsigned char *keys = (unsigned char *)(fresh + WARPS * stride), *values = keys + pageTokens * keyBytes;
  // A thread has two columns of the values, for some of the queries.
  const int many = N * W / (32 * WARPS), c = 2 * (tid % W), q0 = tid / W * many;
  Work w;
#pragma unroll 1
  for (int index = blockIdx.x; work(a, call, index, N, chunk, &w); index += gridDim.x) {
    const int n = uniform(min(N, w.s.n * share - w.first)), begin = uniform(w.from), end = uniform(w.to);
    // The last of the blocks that have the sequence's queries sees all of its rows.
    const bool writes = w.first + n == w.s.n * share;
    __syncthreads();
    // Rows of a page before the call's are loaded; the others are computed here.
    auto ask = [&](int p, int which) {
      if (p < end) {
        const int old = min(pageTokens, w.s.pos - p * pageTokens), bytes = (which ? a.value : a.key) * size, step = which ? valueBytes : keyBytes;
        const unsigned char *from = a.rows(call->page[w.s.pages + p], which, w.kv);
        unsigned char *to = which ? values : keys;
        const int i = lane * 16;
#pragma unroll 4
        for (int r = warp; r < old; r += WARPS) {
          if (i < bytes) copy16(to + r * step + i, from + r * bytes + i);
          if (size > 2 && i + 512 < bytes) copy16(to + r * step + i + 512, from + r * bytes + i + 512);
        }
      }
      commit();
    };
    ask(begin, 0);
    ask(begin, 1);
    await();
    const auto prepare = [&](int q) {
      if (q < n) {
        const int j = w.first + q, row = w.s.first + j / share;
        ready(a, a.q + (size_t)row * a.qStride + (w.kv * share + j % share) * a.head, a.qNorm, row, queries + q * stride);
      } else if (q < N) {
#pragma unroll 1
        for (int i = lane; i < a.key; i += 32) queries[q * stride + i] = 0.0f;
      }
    };
    if constexpr (N <= WARPS) {
      prepare(warp);
    } else {
#pragma unroll 1
      for (int q = warp; q < N; q += WARPS) prepare(q);
    }
    float out[many][2];
#pragma unroll 1
    for (int p = begin; p < end; p++) {
#pragma unroll 1
      for (int i = max(0, p * pageTokens - w.s.pos) + warp; i < w.s.n; i += WARPS) {
        const int slot = w.s.pos + i - p * pageTokens, row = w.s.first + i;
        if (slot >= pageTokens) break;
        unsigned char *page = call->page[w.s.pages + p];
        ready(a, a.k + (size_t)row * a.kStride + w.kv * a.key, a.kNorm, row, fresh + warp * stride);
        append<T>(keys + slot * keyBytes, writes ? a.rows(page, 0, w.kv) + slot * a.key * size : nullptr, fresh + warp * stride, a.key);
        append<T>(values + slot * valueBytes, writes ? a.rows(page, 1, w.kv) + slot * a.value * size : nullptr, a.v + (size_t)row * a.vStride + w.kv * a.value, a.value);
        __syncwarp();
      }
      arrive<1>();
      if (tid < N) {
        const int pos = w.s.pos + (w.first + tid) / share;
        const int2 sees = a.sees(w.s, pos, p);
        qs->from[tid] = tid < n ? sees.x : 0;
        qs->to[tid] = tid < n ? sees.y : 0;
        qs->first[tid] = p == a.firstPage(pos);
      }
      __syncthreads();
      // 256 threads have up to eight queries at a time.
      if constexpr (N <= 8) {
        dots<T, 2, N, true>(keys, a.key, queries, stride, n, qs, 0, tid / 8, pageTokens / 2, qs->to[n - 1], a.scale, false);
      } else {
#pragma unroll 1
        for (int q = warp / 8 * 8; q < n; q += WARPS)
          dots<T, 2, 8, true>(keys, a.key, queries, stride, n, qs, q, tid / 8 % 32, pageTokens / 2, qs->to[n - 1], a.scale, false);
      }
      __syncthreads();
      ask(p + 1, 0);
      const auto normalize = [&](int q) {
        float2 now;
        softmax(qs, q, split || qs->first[q], &now);
        if (split && lane == 0) a.tops[slotOf(a, w, p, w.first + q)] = make_float4(now.x, now.y, 0.0f, 0.0f);
      };
      if constexpr (N <= WARPS) {
        if (warp < n) normalize(warp);
      } else {
#pragma unroll 1
        for (int q = warp; q < n; q += WARPS) normalize(q);
      }
      arrive<1>();
      __syncthreads();
      const unsigned char *at = values + c * size;
      float *sums = a.sums + slotOf(a, w, p, w.first + q0) * a.columns() + c;
      if (c < a.value && q0 < n) {
        float sum[many][2];
        weigh<T>(sum, qs, q0, n, at, valueBytes);
#pragma unroll
        for (int q = 0; q < many; q++, sums += a.columns()) {
          if (qs->from[q0 + q] == qs->to[q0 + q]) continue;
          if (split) {
            *(float2 *)sums = make_float2(sum[q][0], sum[q][1]);
          } else {
            const float old = qs->old[q0 + q], more = qs->more[q0 + q];
            const bool first = qs->first[q0 + q];
            out[q][0] = first ? sum[q][0] : fused(sum[q][0], more, mul(out[q][0], old));
            out[q][1] = first ? sum[q][1] : fused(sum[q][1], more, mul(out[q][1], old));
          }
        }
      }
      __syncthreads();
      ask(p + 1, 1);
    }
    arrive<0>();
    if (split || c >= a.value || q0 >= n) continue;
    // The sums are passed through the memory of the queries, so that the code after it exists once.
#pragma unroll
    for (int q = 0; q < many; q++) *(float2 *)(queries + (q0 + q) * stride + c) = make_float2(out[q][0], out[q][1]);
#pragma unroll 1
    for (int i = 2 * q0; i < 2 * min(n, q0 + many); i++) {
      const int j = w.first + i / 2, row = w.s.first + j / share, h = w.kv * share + j % share, col = c + i % 2;
      finish(a, row, h, col, queries[i / 2 * stride + col], qs->weight[i / 2], gateOf(a, row, h, col));
    }
  }
}
