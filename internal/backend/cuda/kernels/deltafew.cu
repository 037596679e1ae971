// Gated DeltaNet layers of few rows, with 128 keys and values and a convolution of four: one kernel. A
// block has a value head of a sequence. Queries and keys it computes by itself, though heads may share
// them: that is less than a launch. It takes fewTokens at a time; the state is in registers, as in
// delta_recur128. What no kernel of this pass writes is asked for before await: the state, the last
// inputs, and what is replayed.
#include "delta.cuh"

const int fewTokens = 8;

struct Few {
  float raw[fewTokens][2 * 128];  // query and key after the convolution
  float key[fewTokens][4 * quarterStep], query[fewTokens][4 * quarterStep];
  float value[fewTokens][128], answer[fewTokens][128];
  float decay[fewTokens], beta[fewTokens], kq[fewTokens];
  int last;  // whether the other blocks of the key head have read what they share
};

extern "C" __global__ void __launch_bounds__(512) delta_few(const Call *call, int layer, float *dst, int dstStride,
    const float *qkv, int qkvStride, const float *z, int zStride, const float *a, int aStride, const float *b, int bStride,
    const float *conv, int convStride, const float *rate, const float *bias, const float *norm, float eps, int sigmoidGate,
    int keyHeads, int valueHeads, unsigned *arrived, Codes codes) {
  __shared__ __align__(16) Few few;
  const int h = blockIdx.x, share = valueHeads / keyHeads, m = h / share, tid = threadIdx.x, lane = tid & 31;
  const int warp = __shfl_sync(0xffffffffu, tid / 32, 0), chain = tid & 3, col = tid / 4, own = chain * quarterStep;
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
    float x[fewTokens + 3];  // inputs of the channel, from three before the first token on
#pragma unroll
    for (int i = 0; i < 3; i++) x[i] = mixes ? mem.tail[(size_t)(s.accepted + i) * mem.tailStride + channel] : 0.0f;
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
    auto store = [&] {
      float *p = home;
#pragma unroll
      for (int j = 0; j < 8; j++, p += 4 * step) p[0] = state.of[j].x, p[step] = state.of[j].y, p[2 * step] = state.of[j].z, p[3 * step] = state.of[j].w;
    };
#pragma unroll 1
    for (int t0 = 0; t0 < s.n; t0 += fewTokens) {
      const int count = min(fewTokens, s.n - t0);
      // Convolution and gates.
#pragma unroll
      for (int t = 0; t < fewTokens; t++)
        if (t < count && mixes) x[3 + t] = qkv[(size_t)(s.first + t0 + t) * qkvStride + channel];
      float gate[4] = {};  // of the token that this warp will finish
      if (warp < count)
#pragma unroll
        for (int k = 0; k < 4; k++) gate[k] = z[(size_t)(s.first + t0 + warp) * zStride + h * 128 + lane + 32 * k];
      if (tid >= 384 && tid - 384 < count) {
        const int r = s.first + t0 + tid - 384;
        few.decay[tid - 384] = exp32(mul(rateOf, softplus32(add(a[(size_t)r * aStride + h], biasOf))));
        few.beta[tid - 384] = sigmoid32(b[(size_t)r * bStride + h]);
      }
      if (mixes)
#pragma unroll
        for (int t = 0; t < fewTokens; t++) {
          if (t >= count) break;
          const float y = silu32(fused(taps[3], x[t + 3], fused(taps[2], x[t + 2], fused(taps[1], x[t + 1], mul(taps[0], x[t])))));
          if (tid < 256) few.raw[t][tid] = y;
          else few.value[t][tid - 256] = y;
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
        const float length = rsqrt32(add(sum16(sum), 1e-6f)), scale = lane < 16 ? mul(length, rsqrt32(128.0f)) : length;
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
      // Tail row i becomes the input of token sure-3+i.
      if (mixes && (tid >= 256 || few.last))
#pragma unroll
        for (int i = 0; i < fewTokens + 3; i++)
          if (i < count + 3 && (i >= 3 || t0 == 0) && t0 + i >= sure) mem.tail[(size_t)(t0 + i - sure) * mem.tailStride + channel] = x[i];
#pragma unroll
      for (int i = 0; i < 3; i++) x[i] = x[fewTokens + i];
#pragma unroll 1
      for (int j = 0; j < count; j++) {
        const int t = t0 + j;
        if (t == sure) store();  // what comes now may be rejected
        const float4 *query = (const float4 *)(few.query[j] + own);
        Quarter key;
        key.load(few.key[j] + own);
        float u = 0.0f, w = 0.0f;
#pragma unroll
        for (int k = 0; k < 8; k++) state.read(k, key.of[k], query[k], &u, &w);
        const float decay = few.decay[j], delta = mul(fused(-decay, quarters(u), few.value[j][col]), few.beta[j]);
        const float answer = fused(few.kq[j], delta, mul(decay, quarters(w)));
        if (chain == 0) {
          few.answer[j][col] = answer;
          if (t >= sure) mem.deltas[(size_t)(t - sure) * mem.deltasStride + h * 128 + col] = delta;
        }
        if (tid == 0 && t >= sure) mem.decays[(size_t)(t - sure) * mem.decaysStride + h] = decay;
#pragma unroll
        for (int k = 0; k < 8; k++) state.change(k, key.of[k], delta, decay);
      }
      if (t0 + count == s.n && s.drafts == 0) store();
      __syncthreads();
      if (few.last)
#pragma unroll 1
        for (int i = max(sure - t0, 0) * 128 + tid; i < count * 128; i += 512)
          mem.keys[(size_t)(t0 + i / 128 - sure) * mem.keysStride + m * 128 + i % 128] = few.key[i / 128][(i & 3) * quarterStep + i % 128 / 4];
      // The gated norm.
      if (warp < count) {
        const int r = s.first + t0 + warp;
        const float *y = few.answer[warp];
        const float scale = rsqrt32(add(quot(dot16(y, y, 128), 128.0f), eps));
        float v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
          const float by = sigmoidGate ? sigmoid32(gate[k]) : silu32(gate[k]);
          v[k] = mul(mul(mul(y[lane + 32 * k], scale), gain[k]), by);
          dst[(size_t)r * dstStride + h * 128 + lane + 32 * k] = v[k];
        }
        if (codes.codes) quantizeGroups(v, 128, codes, r, h * 128);
      }
    }
    __syncthreads();
  }
  await();
}
