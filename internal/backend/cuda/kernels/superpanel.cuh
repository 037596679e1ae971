// Products of a few dozen rows with superblocks.
#pragma once
#include "super.cuh"

// panelSuper is for a few dozen rows, and for those of experts: a block has `size` tiles, a warp of each for every 16 rows. They share
// the weights and rows, which are copied some blocks ahead.
template <int FORM, int S> __device__ __forceinline__ void panelSuper(const Product& p, const Parts& parts, int size) {
  typedef Super<FORM> F;
  constexpr int STRIPS = 2, VECTORS = F::BLOCK / 16;
  extern __shared__ __align__(16) byte stages[];
  release();
  const word* table = tableOf<FORM, 4>(p.w);
  const int threads = blockDim.x, down = threads / 32 / size, all = 16 * down;  // rows
  const int lane = threadIdx.x & 31, own = threadIdx.x / 32 / down, part = threadIdx.x / 32 % down, first = 16 * part, odd = lane >> 2 & 1;
  const int blocks = p.w.groups;
  int index = blockIdx.x * size + own;
  Piece piece = {0, 0, 0, p.rows};
  if (p.jobs) {
    const int panels = (parts.tiles + size - 1) / size, job = blockIdx.x / panels;
    await();
    if (job >= *p.jobCount) return;
    const Job j = p.jobs[job];
    index -= job * panels * size, piece = {0, j.matrix, j.first, j.rows};
  }
  const int from = parts.same ? 0 : piece.first;
  const int acts = size * F::BLOCK, tail = acts + all * 256, stageBytes = tail + 3 * all * 8;
  const word base = (word)__cvta_generic_to_shared(stages);
  int tile = min(index, parts.tiles - 1);
  const Part& of = partOf(parts, tile);
  const byte* source = (piece.matrix < 0 ? of.other : of.data + piece.matrix * p.w.matrix) + (long long)tile * p.w.tileBytes;
  auto weights = [&](word to, int k) {
    const byte* from = source + (long long)k * F::BLOCK;
#pragma unroll 1
    for (int v = 32 * part + lane; v < VECTORS; v += 32 * down) copy16(to + own * F::BLOCK + v * 16, from + v * 16);
  };
  auto rows = [&](word to, int k) {
#pragma unroll 1
    for (int i = threadIdx.x; i < all * 16; i += threads) {
      const int r = i / 16;
      copy16(to + acts + r * 256 + ((i & 15) ^ (r & 1) << 2) * 16, p.codes + (long long)(from + min(r, piece.rows - 1)) * p.codeStride + k * 256 + (i & 15) * 16);
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < 3 * all / 2; i += threads)
      copy16(to + tail + i * 16, p.tails + (long long)(k * 3 + i / (all / 2)) * p.tailRows + from + 2 * (i % (all / 2)));
  };
#pragma unroll 1
  for (int k = 0; k < S - 1; k++)
    if (k < blocks) weights(base + k * stageBytes, k);
  if (!p.jobs) await();
#pragma unroll 1
  for (int k = 0; k < S - 1; k++) {
    if (k < blocks) rows(base + k * stageBytes, k);
    commit();
  }
  int now = 0, ask = S - 1;  // stages
  float acc[STRIPS][4];
#pragma unroll
  for (int i = 0; i < 4 * STRIPS; i++) acc[i / 4][i % 4] = 0;
#pragma unroll 1
  for (int k = 0; k < blocks; k++) {
    arrived<S - 2>();
    __syncthreads();
    if (k + S - 1 < blocks) weights(base + ask * stageBytes, k + S - 1), rows(base + ask * stageBytes, k + S - 1);
    commit();
    const byte* stage = stages + now * stageBytes;
    now = now + 1 == S ? 0 : now + 1, ask = ask + 1 == S ? 0 : ask + 1;
    const byte *block = stage + own * F::BLOCK, *row = stage + acts + (first + lane / 4) * 256 + (lane & 3) * 16;
    const float2* tails = (const float2*)(stage + tail);
    const word* digits = (const word*)(tails + (1 + (lane >> 1 & 1)) * all + first + lane / 4) + (lane & 1);
    int sum[STRIPS][4], less[STRIPS][4];
#pragma unroll
    for (int i = 0; i < 4 * STRIPS; i++) sum[i / 4][i % 4] = less[i / 4][i % 4] = 0;
#pragma unroll 2
    for (int i = 0; i < 4; i++) {
      Pair<FORM> two;
      two.read(block, i, lane, table);
#pragma unroll
      for (int n = 0; n < STRIPS; n++) two.multiply(sum[n], less[n], *(const uint4*)(row + n * 2048 + 64 * (i ^ odd)));
    }
    Closing<FORM> c;
    c.factors(block, lane), c.scales(block, lane);
#pragma unroll
    for (int n = 0; n < STRIPS; n++) {
      const float4 s = *(const float4*)(tails + first + n * 8 + 2 * (lane & 3));
      float x[4];
      c.close(x, sum[n], less[n], F::BIASES ? digits[16 * n] : 0, lane);
#pragma unroll
      for (int j = 0; j < 4; j++) acc[n][j] = __fmaf_rn(x[j], j & 1 ? s.z : s.x, acc[n][j]);
    }
  }
  if (index >= parts.tiles) return;
#pragma unroll
  for (int n = 0; n < STRIPS; n++)
#pragma unroll
    for (int j = 0; j < 4; j++) put(of, piece, first + n * 8 + (lane & 3) * 2 + (j & 1), tile * 16 + lane / 4 + (j >> 1) * 8, acc[n][j]);
}
