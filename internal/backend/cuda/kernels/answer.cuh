// Experts of one row: their last product, and its sum.
#pragma once
#include "few.cuh"

// Answer has the weights of the outputs of one row's experts, and the destination of their sum: by rank,
// then the shared one, whose weight is the sigmoid of router's number or, without router, 1.
struct Answer {  // shared with Go
  const float *weights, *router;
  float* dst;
  int choices, shared;  // experts of the row: at most maxPicks; and one or none
  Pick pick;            // the selection; none: it is listed
};

// answer is the down projection of the experts of one row and their sum. A block has a tile of outputs, and a
// warp one expert at a time, whose inputs it quantizes itself. The previous kernel lets this one begin after
// it has waited for the inputs of the selection, so weights are loaded before await.
template <int SCALES> __device__ __forceinline__ void answer(const Product& p, const Parts& parts, const Answer& a) {
  constexpr int H = groupsIn<SCALES>, G = chunkOf<SCALES, 1>, S = stagesOf<SCALES, 1>, BLOCK = blockBytes<4, 64, SCALES>(), CHUNK = G * BLOCK, COPIES = (CHUNK / 16 + 31) / 32;
  extern __shared__ __align__(16) byte space[];
  __shared__ __align__(16) typename std::conditional<H != 1, Halves<1>, Turned<1>>::type turned[16];
  __shared__ __align__(16) signed char codes[16][G * 64];
  __shared__ __align__(16) float2 tails[16][G * H];
  __shared__ Picked picked;
  const int lane = threadIdx.x & 31, warp = __shfl_sync(~0u, threadIdx.x / 32, 0), warps = blockDim.x / 32, output = lane & 15, quad = lane & 3;
  const int groups = p.w.groups, chunks = (groups + G - 1) / G, jobs = a.choices + a.shared, tile = blockIdx.x;
  const Part& part = parts.part[0];
  byte* mine = space + warp * S * CHUNK;
  float* answers = (float*)(space + warps * S * CHUNK);
  const word into = (word)__cvta_generic_to_shared(mine) + lane * 16;
  release();
  if (a.pick.logits) {
    if (warp == 0) picked.choose(a.pick);
  } else if (threadIdx.x < 32) {
    for (int j = lane; j < jobs; j += 32) picked.chosen[j] = __ldcg((const int4*)p.jobs + j).x;
  }
  __syncthreads();
  auto ask = [&](int n, int stage) {  // chunk n of the warp's
    const int job = warp + n / chunks * warps, k = n % chunks;
    if (job < jobs) {
      const int matrix = picked.chosen[job], bytes = min(G, groups - k * G) * BLOCK;
      const byte* from = (matrix < 0 ? part.other : part.data + matrix * p.w.matrix) + (long long)tile * p.w.tileBytes + k * CHUNK;
#pragma unroll
      for (int i = 0; i < COPIES; i++)
        if (lane + 32 * i < CHUNK / 16) copy16(into + stage * CHUNK + i * 512, from + min(lane * 16 + i * 512, bytes - 16));
    }
    commit();
  };
#pragma unroll
  for (int i = 0; i < S; i++) ask(i, i);
  if (warp == 0) {
    if (a.pick.logits) picked.weigh(a.pick);
    else if (lane < a.choices) picked.weights[lane] = __ldcg(a.weights + lane);
  }
  await();
  float* to = a.dst + tile * 16 + output;
  const bool adds = warp == 0 && lane < 16 && tile * 16 + output < part.rows;
  const float old = adds ? *to : 0.0f, logit = a.router ? *a.router : 0.0f;
  const typename std::conditional<tabled<SCALES>, Lone, const Weight&>::type lone(p.w);
  float acc = 0;
#pragma unroll 1
  for (int n = 0, stage = 0, k = 0, job = warp; job < jobs; n++) {
    float factor = 0;
    if constexpr (SCALES == NV) {
      const int matrix = picked.chosen[job];
      factor = factorOf<BLOCK, SCALES>((matrix < 0 ? part.other : part.data + matrix * p.w.matrix) + (long long)tile * p.w.tileBytes, groups);
    }
    const float* x = p.x + (long long)(8 * job) * p.xStride + k * (G * 64);
#pragma unroll
    for (int half = 0; half < G / 4; half++) {
      const int at = half * 256 + lane / 8 * 64 + 4 * (lane & 7);
      float v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
      if (k * (G * 64) + at < p.w.cols) {
        *(float4*)v = *(const float4*)(x + at);
        *(float4*)(v + 4) = *(const float4*)(x + at + 32);
      }
      word c[2];
      float2 tail[H];
      roundBlock<H, zeroed<SCALES>>(v, c, tail);
      keepCodes<H>(codes[warp], at, c);
#pragma unroll
      for (int h = 0; h < H; h++)
        if ((lane & 7) == 0) tails[warp][at / 64 * H + h] = tail[h];
    }
    arrived<S - 1>();
    __syncwarp();
    Acts<64> acts[1];
    word scale[G];
    float sums[1][G * H], others[1][G];
    if constexpr (tabled<SCALES>) {
      using Looked = Lookup<SCALES, 1>;
#pragma unroll
      for (int i = 0; i < G / Looked::G; i++) {
        Looked lookup;
        lookup.template load<true>(codes[warp] + i * Looked::G * 64 + lookup.place(lane / 4, quad), &tails[warp][16 * i + 2 * quad], 1);
        lookup.multiply(mine + stage * CHUNK + i * Looked::G * BLOCK, turned[warp], lone);
        if (i + 1 == G / Looked::G) continue;
        __syncwarp();
        turned[warp].get(lane, sums, 16 * i);
        __syncwarp();
      }
      readWords(scale, mine + stage * CHUNK, output);
    } else if constexpr (H == 2) {
      loadGroups<SCALES>(acts[0], codes[warp] + lane / 4 * 64, quad);
      const float2* of = &tails[warp][4 * quad];
      const float4 tail[1] = {make_float4(of[0].x, of[1].x, of[2].x, of[3].x)};
      multiplyPairs<1>(mine + stage * CHUNK, acts, tail, turned[warp], scale);
    } else {
      loadActs<64>(acts[0], codes[warp] + lane * 16);
      const float4 tail[1] = {*(const float4*)&tails[warp][2 * quad]};
      multiplyChunk<SCALES, 1>(mine + stage * CHUNK, acts, tail, turned[warp], scale);
    }
    __syncwarp();
    ask(n + S, stage);
    stage = (stage + 1) % S;
    if constexpr (H > 1)
      turned[warp].get(lane, sums, G * H - 16);
    else
      turned[warp].get(lane, sums, others);
#pragma unroll
    for (int g = 0; g < G; g++) {
      float slope[H < 2 ? 2 : H];
      scalesOf<SCALES>(slope, scale[g], factor);
      if (g >= groups - k * G) continue;
      if constexpr (H > 1) {
#pragma unroll
        for (int h = 0; h < H; h++) acc = __fmaf_rn(sums[0][H * g + h], slope[h], acc);
      } else {
        acc = linked<SCALES>(acc, sums[0][g], slope[0], slope[1], others[0][g]);
      }
    }
    if (++k == chunks) {
      if (lane < 16) answers[job * 16 + output] = acc;
      acc = 0, k = 0, job += warps;
    }
    __syncwarp();
  }
  __syncthreads();
  if (!adds) return;
  float sum = 0;
#pragma unroll 4
  for (int j = 0; j < a.choices; j++) sum = add(sum, mul(picked.weights[j], answers[j * 16 + output]));
  if (a.shared) sum = add(sum, mul(a.router ? sigmoid32(logit) : 1.0f, answers[a.choices * 16 + output]));
  *to = add(old, sum);
}

// Kernel answer_BITS_COLUMNS: down projections of the experts of one row (grouped GEMV) and their weighted sum, fused with
//   quantization and, where it is asked for, with the softmax choice.
// Layout: as in relay; rows as float32, one for each expert.
// Grid: one block for each tile of 16 outputs, a warp for each expert in turn.
// Sums: products as in relay; experts are added by rank, then the shared one.
#define ANSWER(NAME, SCALES)                                                                                                     \
  extern "C" __global__ void __launch_bounds__(512, 1)                                                                           \
      NAME(const __grid_constant__ Product p, const __grid_constant__ Parts parts, const __grid_constant__ Answer a) {           \
    answer<SCALES>(p, parts, a);                                                                                                 \
  }
