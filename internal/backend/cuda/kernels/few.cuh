// Products of one or two rows with weights of 4 bits in groups of 64: the relay, with no column of the
// tensor cores idle.
//
// Tensor cores multiply a block with eight columns at once. Where rows are fewer, the columns are
// several groups of each row: of the block of one group only the columns of that group count, so a
// lane keeps, of the sums of eight groups, as many as it has of one group with eight rows. What
// follows per sum, which is most of the work, is that much less. The sums go through shared
// memory to the lanes that add them up in order, one output and row each. With four rows that is no
// less work than a relay has.
#pragma once
#include "relay.cuh"

template <int R, int S> __device__ __forceinline__ void few(const Product& p, const Parts& parts, int shift) {
  constexpr int G = 8, GROUP = 64, BLOCK = blockBytes<4, GROUP, false>(), CHUNK = G * BLOCK, CODES = GROUP * 8;
  constexpr int SUB = 8 / R;  // groups of a row that are columns together
  extern __shared__ __align__(16) byte ring[];
  __shared__ float baton[8][32];
  __shared__ __align__(16) float turned[8][R][17][G];  // by row and output; the last has the sums of the codes
  release();
  Walk<BLOCK, G> w(p, parts, shift);
  Chunks& now = w.now;
  const int lane = w.lane, warp = w.warp, size = w.size, next = w.next, groups = w.groups, tailRows = p.tailRows;
  const int quad = lane & 3, output = lane & 15;
  if (p.jobs) await();
  w.begin();
  const int total = w.total;
  byte* mine = ring + warp * S * CHUNK;
  const word into = (word)__cvta_generic_to_shared(mine) + lane * 16;
#pragma unroll 1
  for (int i = 0; i < S; i++) w.issue(into + i * CHUNK);
  if (!p.jobs) await();

  // Column n of the tensor cores is row n%R and group n/R of SUB groups. As a right operand a lane has
  // column lane/4, of sums columns 2*quad and one more.
  const signed char* codes;
  const float2* tails;
  auto look = [&] {
    const int first = parts.same ? 0 : now.piece.first, n = lane / 4;
    codes = p.codes + (long long)(first + min(n % R, now.piece.rows - 1)) * p.codeStride + (now.k * G + n / R) * GROUP + quad * 16;
    tails = p.tails + ((long long)now.k * G + 2 * quad / R) * tailRows + first + 2 * quad % R;
  };
  Acts<GROUP> acts[R];
  float4 tail[R];
  auto ahead = [&] {
#pragma unroll
    for (int i = 0; i < R; i++) {
      loadActs<GROUP>(acts[i], codes + i * SUB * GROUP);
      const float2* at = tails + i * SUB * tailRows;
      if constexpr (R == 1) {
        const float2 a = at[0], b = at[tailRows];
        tail[i] = make_float4(a.x, a.y, b.x, b.y);
      } else {
        tail[i] = *(const float4*)at;
      }
    }
  };
  if (now.item < total) look(), ahead();
  int stage = 0;
  if (w.turn + 1 == size && w.team < total) {
    baton[next][lane] = 0;
    if (size > 1) hand(1 + next);
  }
  while (now.item < total) {
    arrived<S - 1>();
    __syncwarp();
    const byte* blocks = mine + stage * CHUNK;
#pragma unroll
    for (int i = 0; i < R; i++) {
      int sums[4];
#pragma unroll
      for (int s = 0; s < SUB; s++) {
        Codes<GROUP> c;
        unpack<4, GROUP>(c, blocks + (i * SUB + s) * BLOCK, lane);
        int d[4];
        multiply<GROUP>(d, c, acts[i]);
#pragma unroll
        for (int j = 0; j < 4; j++)
          if (s == 0 || (2 * quad + (j & 1)) / R == s) sums[j] = d[j];
      }
      const float scales[2] = {tail[i].x, tail[i].z}, others[2] = {tail[i].y, tail[i].w};
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int row = (2 * quad + j) % R, g = i * SUB + (2 * quad + j) / R;
        turned[warp][row][lane / 4][g] = __fmul_rn(sumOf(sums[j]), scales[j]);
        turned[warp][row][lane / 4 + 8][g] = __fmul_rn(sumOf(sums[j + 2]), scales[j]);
        if (lane < 4) turned[warp][row][16][g] = others[j];
      }
    }
    word scale[G];
#pragma unroll
    for (int g = 0; g < G; g++) scale[g] = ((const word*)(blocks + g * BLOCK + CODES))[2 * (output & 7) + (output >> 3)];
    __syncwarp();
    w.issue(into + stage * CHUNK);
    stage = stage + 1 == S ? 0 : stage + 1;
    const Chunks was = now;
    if (!w.step(now)) {
      codes += G * GROUP << shift;
      tails += (long long)(G << shift) * tailRows;
    } else if (now.item < total) {
      look();
    }
    if (now.item < total) ahead();
    float x[G], others[G], slope[G], shifted[G];
    const int row = R == 1 ? 0 : lane / 16;
#pragma unroll
    for (int g = 0; g < G; g += 4) {
      *(float4*)&x[g] = *(const float4*)&turned[warp][row][output][g];
      *(float4*)&others[g] = *(const float4*)&turned[warp][row][16][g];
    }
#pragma unroll
    for (int g = 0; g < G; g++) slope[g] = __uint_as_float(scale[g] << 16), shifted[g] = __uint_as_float(scale[g] & 0xffff0000u);
    const bool last = was.k == w.chunks - 1;
    const int count = last ? groups - was.k * G : G;

    // From here to hand is what the other warps of the team wait for.
    if (size > 1) meet(1 + warp);
    float acc = baton[warp][lane];
#pragma unroll
    for (int g = 0; g < G; g++)
      if (g < count) acc = __fmaf_rn(shifted[g], others[g], __fmaf_rn(x[g], slope[g], acc));
    baton[next][lane] = last ? 0.0f : acc;
    if (size > 1 && (!last || was.item + w.teams < total)) hand(1 + next);
    if (last) {
      int tile = was.piece.tile;
      const Part& part = partOf(parts, tile);
      if (lane < 16 * R) put(part, was.piece, row, tile * 16 + output, acc);
    }
  }
}

// As few registers as three blocks would have, though there is shared memory for two: the rest is for
// the blocks of the next kernels, which begin early and wait.
#define FEW(NAME, R, S)                                                                           \
  extern "C" __global__ void __launch_bounds__(256, 3)                                            \
      NAME(const __grid_constant__ Product p, const __grid_constant__ Parts parts, int shift) {   \
    few<R, S>(p, parts, shift);                                                                   \
  }
