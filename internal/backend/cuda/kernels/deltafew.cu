// Gated DeltaNet layers of few rows, with 128 keys and values and a convolution of four: one kernel. A
// block has a value head of a sequence. It computes queries and keys itself, though heads may share
// them: that costs less than a launch. It takes fewTokens at a time. The state is in registers: a warp has
// the keys of one chain and 32 columns, so that rows of a state are read whole, and the four chains of
// a column are combined in shared memory. Inputs that no kernel of this pass writes are loaded before await:
// the state, the last inputs, and replayed tokens.
#include "async.cuh"
#include "delta.cuh"

const int fewTokens = 8;
const float perKey = 0.0883883461f;  // rsqrt32(128)

struct Few {
  float in[3 + fewTokens][384];   // a channel of each thread, from three tokens before the first on
  union {
    float raw[fewTokens][2 * 128];  // query and key after the convolution
    float2 sums[2][4][128];         // then those of chains with key and query, alternating
  };
  float key[fewTokens][4 * quarterStep], query[fewTokens][4 * quarterStep];
  float value[fewTokens][128], answer[fewTokens][128], gate[fewTokens][128];
  float decay[fewTokens], beta[fewTokens], kq[fewTokens];
  int last;  // whether the other blocks of the key head have read the shared inputs
};

// Kernel delta_few: a whole Gated DeltaNet layer for decoding: convolution, norms, recurrence, gated norm and quantization in
//   one kernel.
// Layout: state [key, value] float32 per value head, in registers.
// Grid: x: value heads, y: sequences by stride.
// Sums: a sum over the keys by key mod 4, then (0+1)+(2+3) (deltaRead of the CPU).
extern "C" __global__ void __launch_bounds__(512) delta_few(const Call *call, int layer, float *dst, int dstStride,
    const float *qkv, int qkvStride, const float *z, int zStride, const float *a, int aStride, const float *b, int bStride,
    const float *conv, int convStride, const float *rate, const float *bias, const float *norm, float eps, int sigmoidGate,
    int keyHeads, int valueHeads, int neighbors, unsigned *arrived, Codes codes) {
  __shared__ __align__(16) Few few;
  const int h = blockIdx.x, share = valueHeads / keyHeads, m = keyHead(h, neighbors, keyHeads), tid = threadIdx.x, lane = tid & 31;
  const int warp = __shfl_sync(0xffffffffu, tid / 32, 0), chain = warp & 3, col = warp / 4 * 32 + lane, own = chain * quarterStep;
  // A thread has a channel of the convolution, or none.
  const bool mixes = tid < 384;
  const int channel = tid < 128 ? m * 128 + tid : tid < 256 ? (keyHeads + m) * 128 + tid - 128 : 2 * keyHeads * 128 + h * 128 + tid - 256;
  release();
  float taps[4], gain[4];
#pragma unroll
  for (int k = 0; k < 4; k++) taps[k] = mixes ? conv[(size_t)k * convStride + channel] : 0.0f, gain[k] = norm[lane + 32 * k];
  const float rateOf = rate[h], biasOf = bias[h];
#pragma unroll 1
  for (int owner = blockIdx.y; owner < call->seqs; owner += gridDim.y) {
    Seq s = call->seq[owner];
    s.n = __shfl_sync(0xffffffffu, s.n, 0), s.drafts = __shfl_sync(0xffffffffu, s.drafts, 0), s.accepted = __shfl_sync(0xffffffffu, s.accepted, 0);
    if (s.n == 0) continue;
    const Recurrent mem = call->delta[s.deltas + layer];
    const int sure = s.n - s.drafts;
    float *home = mem.state + ((size_t)h * 128 + chain) * mem.stateStride + col;
    const size_t step = (size_t)4 * mem.stateStride;
    State state;
    const float *p = home;
#pragma unroll
    for (int j = 0; j < 8; j++, p += 4 * step) state.of[j] = make_float4(p[0], p[step], p[2 * step], p[3 * step]);
    float *in = few.in[0] + tid;
    if (mixes)
#pragma unroll
      for (int i = 0; i < 3; i++) copy4(in + 384 * i, mem.tail + (size_t)(s.accepted + i) * mem.tailStride + channel);
#pragma unroll 1
    for (int j0 = 0; j0 < s.accepted; j0 += fewTokens) {
      const int count = min(fewTokens, s.accepted - j0);
#pragma unroll 2
      for (int i = tid; i < count * 128; i += 512) {
        const int j = i / 128, k = i % 128;
        few.key[j][(k & 3) * quarterStep + k / 4] = mem.keys[(size_t)(j0 + j) * mem.keysStride + m * 128 + k];
        few.value[j][k] = mem.deltas[(size_t)(j0 + j) * mem.deltasStride + h * 128 + k];
      }
      if (tid < count) few.decay[tid] = mem.decays[(size_t)(j0 + tid) * mem.decaysStride + h];
      __syncthreads();
#pragma unroll 1
      for (int j = 0; j < count; j++) {
        const float4 *key = (const float4 *)(few.key[j] + own);
#pragma unroll
        for (int k = 0; k < 8; k++) state.change(k, key[k], few.value[j][col], few.decay[j]);
      }
      __syncthreads();
    }
    await();
#pragma unroll 1
    for (int t0 = 0; t0 < s.n; t0 += fewTokens) {
      const int count = min(fewTokens, s.n - t0), r0 = s.first + t0;
      // Convolution and gates: everything is loaded at once.
      if (mixes)
#pragma unroll 4
        for (int t = 0; t < count; t++) copy4(in + 384 * (3 + t), qkv + (size_t)(r0 + t) * qkvStride + channel);
#pragma unroll 2
      for (int i = tid; i < count * 128; i += 512) copy4(&few.gate[i / 128][i % 128], z + (size_t)(r0 + i / 128) * zStride + h * 128 + i % 128);
      commit();
      if (tid >= 384 && tid - 384 < count) {
        const int t = tid - 384;
        const float x = a[(size_t)(r0 + t) * aStride + h], y = b[(size_t)(r0 + t) * bStride + h];
        few.decay[t] = exp32(mul(rateOf, softplus32(add(x, biasOf))));
        few.beta[t] = sigmoid32(y);
      }
      arrive<0>();
      if (mixes) {
        float x0 = in[0], x1 = in[384], x2 = in[2 * 384];
#pragma unroll 1
        for (int t = 0; t < count; t++) {
          const float x3 = in[384 * (3 + t)], y = silu32(fused(taps[3], x3, fused(taps[2], x2, fused(taps[1], x1, mul(taps[0], x0)))));
          x0 = x1, x1 = x2, x2 = x3;
          if (tid < 256) few.raw[t][tid] = y;
          else few.value[t][tid - 256] = y;
        }
      }
#pragma unroll 1
      for (int i = tid; i < count * 128; i += 512) {
        const float g = few.gate[i / 128][i % 128];
        few.gate[i / 128][i % 128] = sigmoidGate ? sigmoid32(g) : silu32(g);
      }
      __syncthreads();
      if (tid == 511 && t0 == 0) {
        few.last = 1;
        if (share > 1) {
          __threadfence();
          unsigned *at = arrived + owner * keyHeads + m;
          if (atomicAdd(at, 1u) + 1 == share) atomicExch(at, 0u);
          else few.last = 0;
        }
      }
      // Half a warp has the query of a token, the other half the key.
      if (warp < count) {
        const float *raw = few.raw[warp] + lane / 16 * 128 + (lane & 15);
        float y[8], sum = 0.0f;
#pragma unroll
        for (int j = 0; j < 8; j++) y[j] = raw[16 * j], sum = fused(y[j], y[j], sum);
        const float length = rsqrt32(add(sum16(sum), 1e-6f)), scale = lane < 16 ? mul(length, perKey) : length;
        float *to = lane < 16 ? few.query[warp] : few.key[warp];
        sum = 0.0f;
#pragma unroll
        for (int j = 0; j < 8; j++) {
          const int k = 16 * j + (lane & 15);
          y[j] = mul(y[j], scale);
          to[(k & 3) * quarterStep + k / 4] = y[j];
          sum = fused(y[j], __shfl_xor_sync(0xffffffffu, y[j], 16), sum);
        }
        sum = sum16(sum);
        if (lane == 0) few.kq[warp] = sum;
      }
      __syncthreads();
      // The recurrence. The state is written before the first token that may be rejected.
#pragma unroll 1
      for (int j = 0;; j++) {
        const int t = t0 + j;
        if (t == sure && (j < count || t == s.n)) {
          float *p = home;
#pragma unroll
          for (int k = 0; k < 8; k++, p += 4 * step) p[0] = state.of[k].x, p[step] = state.of[k].y, p[2 * step] = state.of[k].z, p[3 * step] = state.of[k].w;
        }
        if (j == count) break;
        const float4 *key = (const float4 *)(few.key[j] + own), *query = (const float4 *)(few.query[j] + own);
        float u = 0.0f, w = 0.0f;
#pragma unroll
        for (int k = 0; k < 8; k++) state.read(k, key[k], query[k], &u, &w);
        float2(&sums)[4][128] = few.sums[j & 1];
        sums[chain][col] = make_float2(u, w);
        __syncthreads();
        const float2 s0 = sums[0][col], s1 = sums[1][col], s2 = sums[2][col], s3 = sums[3][col];
        u = add(add(s0.x, s1.x), add(s2.x, s3.x)), w = add(add(s0.y, s1.y), add(s2.y, s3.y));
        const float decay = few.decay[j], delta = mul(fused(-decay, u, few.value[j][col]), few.beta[j]);
        const float answer = fused(few.kq[j], delta, mul(decay, w));
        if (chain == 0) {
          few.answer[j][col] = answer;
          if (t >= sure) mem.deltas[(size_t)(t - sure) * mem.deltasStride + h * 128 + col] = delta;
        }
        if (tid == 0 && t >= sure) mem.decays[(size_t)(t - sure) * mem.decaysStride + h] = decay;
#pragma unroll
        for (int k = 0; k < 8; k++) state.change(k, key[k], delta, decay);
      }
      __syncthreads();
      // The gated norm.
      if (warp < count) {
        const int r = r0 + warp;
        const float *y = few.answer[warp];
        const float scale = rsqrt32(add(quot(dot16(y, y, 128), 128.0f), eps));
        float v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
          v[k] = mul(mul(mul(y[lane + 32 * k], scale), gain[k]), few.gate[warp][lane + 32 * k]);
          dst[(size_t)r * dstStride + h * 128 + lane + 32 * k] = v[k];
        }
        if (codes.codes) quantizeRow(v, 128, codes, r, h * 128);
      }
      // Inputs of the next call: keys of drafts, and in row i of the tail the input of token sure-3+i.
      if (few.last)
#pragma unroll 1
        for (int i = max(sure - t0, 0) * 128 + tid; i < count * 128; i += 512)
          mem.keys[(size_t)(t0 + i / 128 - sure) * mem.keysStride + m * 128 + i % 128] = few.key[i / 128][(i & 3) * quarterStep + i % 128 / 4];
      if (mixes && (tid >= 256 || few.last))
#pragma unroll 1
        for (int i = max(sure - t0, t0 > 0 ? 3 : 0); i < count + 3; i++) mem.tail[(size_t)(t0 + i - sure) * mem.tailStride + channel] = in[384 * i];
      if (mixes && count == fewTokens)
#pragma unroll
        for (int i = 0; i < 3; i++) in[384 * i] = in[384 * (fewTokens + i)];
      __syncthreads();
    }
  }
  await();
}

// One row, with nothing between its numbers and registers: a thread has the four inputs of its channel.
struct One {
  float raw[2 * 128], key[4 * quarterStep], query[4 * quarterStep];  // key and query after the convolution, then with length one
  float value[128], gate[128], answer[128];
  float2 sums[4][128];  // of chains with key and query
  float decay, beta, kq;
  int last;
};

// Kernel delta_one: a whole Gated DeltaNet layer for one row, with the token in registers.
// Layout: as in delta_few.
// Grid: x: value heads.
// Sums: a sum over the keys by key mod 4, then (0+1)+(2+3) (deltaRead of the CPU).
extern "C" __global__ void __launch_bounds__(512) delta_one(const Call *call, int layer, float *dst,
    const float *qkv, const float *z, const float *a, const float *b,
    const float *conv, int convStride, const float *rate, const float *bias, const float *norm, float eps, int sigmoidGate,
    int keyHeads, int valueHeads, int neighbors, unsigned *arrived, Codes codes) {
  __shared__ __align__(16) One one;
  __shared__ float replayed[128];
  const int h = blockIdx.x, share = valueHeads / keyHeads, m = keyHead(h, neighbors, keyHeads), tid = threadIdx.x, lane = tid & 31;
  const int warp = __shfl_sync(0xffffffffu, tid / 32, 0), chain = warp & 3, col = warp / 4 * 32 + lane, own = chain * quarterStep;
  const bool mixes = tid < 384;
  const int channel = tid < 128 ? m * 128 + tid : tid < 256 ? (keyHeads + m) * 128 + tid - 128 : 2 * keyHeads * 128 + h * 128 + tid - 256;
  release();
  // The row is most often that of the first sequence, whose state is loaded before that is known.
  const Seq *seq = call->seq;
  const int seqs = call->seqs;
  Recurrent mem;
  if (seqs > 0) mem = call->delta[layer];
  int owner = 0, n = 0, drafts = 0, accepted = 0;
#pragma unroll 1
  for (; owner < seqs && n == 0; owner++) n = seq[owner].n, drafts = seq[owner].drafts, accepted = seq[owner].accepted;
  if (owner > 1) mem = call->delta[seq[owner - 1].deltas + layer];
  float taps[4], gain[4], x[4];
#pragma unroll
  for (int k = 0; k < 4; k++) taps[k] = mixes ? conv[(size_t)k * convStride + channel] : 0.0f, gain[k] = norm[lane + 32 * k];
  const float rateOf = rate[h], biasOf = bias[h];
  if (n == 0) {
    await();
    return;
  }
  float *home = mem.state + ((size_t)h * 128 + chain) * mem.stateStride + col;
  const size_t step = (size_t)4 * mem.stateStride;
  State state;
  const float *p = home;
#pragma unroll
  for (int j = 0; j < 8; j++, p += 4 * step) state.of[j] = make_float4(p[0], p[step], p[2 * step], p[3 * step]);
#pragma unroll
  for (int i = 0; i < 3; i++) x[i] = mixes ? mem.tail[(size_t)(accepted + i) * mem.tailStride + channel] : 0.0f;
#pragma unroll 1
  for (int j = 0; j < accepted; j++) {
    if (tid < 128) one.key[(tid & 3) * quarterStep + tid / 4] = mem.keys[(size_t)j * mem.keysStride + m * 128 + tid];
    else if (tid < 256) replayed[tid - 128] = mem.deltas[(size_t)j * mem.deltasStride + h * 128 + tid - 128];
    const float decay = mem.decays[(size_t)j * mem.decaysStride + h];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 8; k++) state.change(k, ((const float4 *)(one.key + own))[k], replayed[col], decay);
    __syncthreads();
  }
  await();
  if (mixes) {
    x[3] = qkv[channel];
    const float y = silu32(fused(taps[3], x[3], fused(taps[2], x[2], fused(taps[1], x[1], mul(taps[0], x[0])))));
    if (tid < 256) one.raw[tid] = y;
    else one.value[tid - 256] = y;
  } else {
    const float g = z[h * 128 + tid - 384];
    one.gate[tid - 384] = sigmoidGate ? sigmoid32(g) : silu32(g);
  }
  __syncthreads();
  if (warp == 0) {  // half of it has the query, the other half the key
    const float *raw = one.raw + lane / 16 * 128 + (lane & 15);
    float y[8], sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; j++) y[j] = raw[16 * j], sum = fused(y[j], y[j], sum);
    const float length = rsqrt32(add(sum16(sum), 1e-6f)), scale = lane < 16 ? mul(length, perKey) : length;
    float *to = lane < 16 ? one.query : one.key;
    sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const int k = 16 * j + (lane & 15);
      y[j] = mul(y[j], scale);
      to[(k & 3) * quarterStep + k / 4] = y[j];
      sum = fused(y[j], __shfl_xor_sync(0xffffffffu, y[j], 16), sum);
    }
    sum = sum16(sum);
    if (lane == 0) one.kq = sum;
  } else if (tid == 511) {
    one.decay = exp32(mul(rateOf, softplus32(add(a[h], biasOf))));
    one.beta = sigmoid32(b[h]);
  } else if (tid == 32) {  // whether the other blocks of the key head have read the shared inputs
    one.last = 1;
    if (share > 1) {
      __threadfence();
      if (atomicAdd(arrived + m, 1u) + 1 == share) atomicExch(arrived + m, 0u);
      else one.last = 0;
    }
  }
  __syncthreads();
  const float4 *key = (const float4 *)(one.key + own), *query = (const float4 *)(one.query + own);
  float u = 0.0f, w = 0.0f;
#pragma unroll
  for (int k = 0; k < 8; k++) state.read(k, key[k], query[k], &u, &w);
  one.sums[chain][col] = make_float2(u, w);
  __syncthreads();
  const float2 s0 = one.sums[0][col], s1 = one.sums[1][col], s2 = one.sums[2][col], s3 = one.sums[3][col];
  u = add(add(s0.x, s1.x), add(s2.x, s3.x)), w = add(add(s0.y, s1.y), add(s2.y, s3.y));
  const float decay = one.decay, delta = mul(fused(-decay, u, one.value[col]), one.beta);
  if (chain == 0) one.answer[col] = fused(one.kq, delta, mul(decay, w));
  __syncthreads();
  // The gated norm, while the other warps write.
  if (warp == 0) {
    const float *y = one.answer;
    const float scale = rsqrt32(add(quot(dot16(y, y, 128), 128.0f), eps));
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
      v[k] = mul(mul(mul(y[lane + 32 * k], scale), gain[k]), one.gate[lane + 32 * k]);
      dst[h * 128 + lane + 32 * k] = v[k];
    }
    if (codes.codes) quantizeRow(v, 128, codes, 0, h * 128);
  }
  if (drafts) {
    if (chain == 0) mem.deltas[h * 128 + col] = delta;
    if (tid == 0) mem.decays[h] = decay;
    if (one.last && tid < 128) mem.keys[m * 128 + tid] = one.key[(tid & 3) * quarterStep + tid / 4];
  } else {
#pragma unroll
    for (int k = 0; k < 8; k++) state.change(k, key[k], delta, decay);
  }
  // A token that may be rejected is not part of the state.
#pragma unroll
  for (int k = 0; k < 8; k++, home += 4 * step) home[0] = state.of[k].x, home[step] = state.of[k].y, home[2 * step] = state.of[k].z, home[3 * step] = state.of[k].w;
  // Row i of the tail has the input of the token that is 3-i before the first that may be rejected.
  if (mixes && (tid >= 256 || one.last))
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (i >= 1 - drafts) mem.tail[(size_t)(i - 1 + drafts) * mem.tailStride + channel] = x[i];
}
