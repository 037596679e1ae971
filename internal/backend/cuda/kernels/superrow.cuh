// Products of one row with superblocks. If the row comes as floats, every block normalizes and rounds it in shared memory while
// its weights are loaded; the bits are those of rms_norm and quantizeSuper.
//
// Tensor cores would compute eight columns instead of one. Instead each lane multiplies its own codes, in the layout
// for tensor cores; the four lanes of an output add up their integers.
#pragma once
#include "quantizesuper.cuh"
#include "row.cuh"
#include "super.cuh"

// SuperRow is a row whose groups are superblocks.
struct SuperRow : Row {
  static constexpr int PIECES = 3;  // superblocks that a warp of eight has at most

  struct Space {
    float4* row;
    signed char* codes;
    word* digits;  // for each superblock the low ones of eight groups, and the high ones
    float* scales;

    __device__ __forceinline__ void lay(byte* at, int cols) {
      row = (float4*)at, codes = (signed char*)(at + 4 * cols);
      digits = (word*)(codes + cols), scales = (float*)((byte*)digits + cols / 16);
    }
  };

  // round leaves the row as integers in shared memory, for all threads. upper is wideSum's.
  __device__ __forceinline__ void round(const Space& space, float upper[33]) const {
    const int lane = threadIdx.x & 31, warp = __shfl_sync(~0u, threadIdx.x / 32, 0), blocks = cols / 256;
    // Number 4j+i of a lane is column 128j+4*lane+i of a superblock.
    float4 gains[PIECES][2];
#pragma unroll
    for (int k = 0; k < PIECES; k++)
#pragma unroll
      for (int j = 0; j < 2; j++)
        if (warp + 8 * k < blocks) gains[k][j] = ((const float4*)gain)[(warp + 8 * k) * 64 + 32 * j + lane];
    await();
    float4 part[2 * PIECES];
#pragma unroll
    for (int i = 0; i < 2 * PIECES; i++)
      if (threadIdx.x + 256 * i < cols / 4) part[i] = ((const float4*)x)[threadIdx.x + 256 * i];
#pragma unroll
    for (int i = 0; i < 2 * PIECES; i++)
      if (threadIdx.x + 256 * i < cols / 4) space.row[threadIdx.x + 256 * i] = part[i];
    __syncthreads();
    float s = 0.0f;
    if (warp < 2) {
#pragma unroll 16
      for (int i = threadIdx.x; i < cols; i += 64) s = fused(((const float*)space.row)[i], ((const float*)space.row)[i], s);
    }
    const float by = rsqrt32(add(quot(wideSum(s, upper), (float)cols), eps));
    const bool leaves = blockIdx.x == 0;
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
      const int g = warp + 8 * k;
      if (g >= blocks) break;
      float v[8];
      word top = 0;
#pragma unroll
      for (int j = 0; j < 2; j++) {
        float4 y = space.row[g * 64 + 32 * j + lane];
        const float4& f = gains[k][j];
        y.x = mul(mul(y.x, by), f.x), y.y = mul(mul(y.y, by), f.y), y.z = mul(mul(y.z, by), f.z), y.w = mul(mul(y.w, by), f.w);
        if (leaves) ((float4*)dst)[g * 64 + 32 * j + lane] = y;
        v[4 * j] = y.x, v[4 * j + 1] = y.y, v[4 * j + 2] = y.z, v[4 * j + 3] = y.w;
      }
#pragma unroll
      for (int i = 0; i < 8; i++) top = max(top, __float_as_uint(v[i]) & 0x7fffffffu);
      top = __reduce_max_sync(~0u, top);
      const float most = __uint_as_float(top), inverse = quot(127.0f, most);
      const bool finite = top < 0x7f800000u, none = top == 0 || !finite || __float_as_uint(inverse) == 0x7f800000u;
      const float scale = none ? finite ? 0.0f : __uint_as_float(0x7fc00000u) : quot(most, 127.0f);
      const int at = g * 256 + 64 * (lane >> 4) + 16 * (lane & 3) + 8 * (lane >> 3 & 1) + 4 * (lane >> 2 & 1);
#pragma unroll
      for (int j = 0; j < 2; j++) {
        word four = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) four |= (__float_as_uint(add(mul(v[4 * j + i], inverse), 12582912.0f)) & 0xff) << 8 * i;  // the last byte is the code
        if (none) four = 0;
        int sum = __dp4a((int)four, 0x01010101, 0);
#pragma unroll
        for (int d = 4; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
        const int times = (sum + 64) >> 7, low = sum - 128 * times;
        *(word*)(space.codes + at + 128 * j) = four;
        if (leaves) *(word*)(codes + at + 128 * j) = four;
        if ((lane & 7) == 0) {
          signed char* digits = (signed char*)(space.digits + 4 * g) + 4 * j + lane / 8;
          digits[0] = low, digits[8] = times;
          if (leaves) {
            float2* tail = tails + 3ll * g * tailRows;
            ((signed char*)(tail + tailRows))[4 * j + lane / 8] = low, ((signed char*)(tail + 2 * tailRows))[4 * j + lane / 8] = times;
          }
        }
      }
      if (lane == 0) {
        space.scales[g] = scale;
        if (leaves) tails[3ll * g * tailRows] = make_float2(scale, 0.0f);
      }
    }
    __syncthreads();
  }
};

__device__ __forceinline__ void read2(float (&v)[2], word at) {
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v[0]), "=f"(v[1]) : "r"(at) : "memory");
}
__device__ __forceinline__ void write2(word at, float a, float b) {
  asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(at), "f"(a), "f"(b) : "memory");
}

// SuperGates is the destination of silu of the first part times the second, as numbers and rounded. Arrived counts the finished tiles of 256
// columns, and is zero before and after. Without it nothing is gated.
struct SuperGates {  // shared with Go
  unsigned* arrived;
  float* dst;
  signed char* codes;
  float2* tails;
  int tailRows, unused;

  // round has a block's warps gate and round the columns that it is the last to have a tile of.
  __device__ __forceinline__ void round(const Parts& parts) const {
    const int lane = threadIdx.x & 31;
    __syncthreads();
#pragma unroll 1
    for (int i = blockIdx.x + gridDim.x * (threadIdx.x / 32); i < parts.tiles; i += gridDim.x * 8) {
      int tile = i;
      partOf(parts, tile);
      const int g = tile / 16;
      int last = 0;
      if (lane == 0) {
        unsigned before;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(__cvta_generic_to_global(arrived + g)) : "memory");
        last = before == 31;
        if (last) arrived[g] = 0;
      }
      __syncwarp();
      if (!__shfl_sync(~0u, last, 0)) continue;
      float v[8];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int at = g * 64 + 32 * j + lane;
        const float4 x = __ldcg((const float4*)parts.part[0].dst + at), y = __ldcg((const float4*)parts.part[1].dst + at);
        const float4 z = make_float4(mul(silu32(x.x), y.x), mul(silu32(x.y), y.y), mul(silu32(x.z), y.z), mul(silu32(x.w), y.w));
        ((float4*)dst)[at] = z;
        v[4 * j] = z.x, v[4 * j + 1] = z.y, v[4 * j + 2] = z.z, v[4 * j + 3] = z.w;
      }
      quantizeSuper(v, codes + g * 256, tails + 3ll * g * tailRows, tailRows);
    }
  }
};

// oneSuper is relaySuper for one row. All four lanes of an output have its accumulator.
template <int FORM, int S> __device__ __forceinline__ void oneSuper(const Product& p, const Parts& parts, int shift, const SuperRow& given, const SuperGates& gates) {
  typedef Super<FORM> F;
  constexpr int BLOCK = F::BLOCK;
  extern __shared__ __align__(16) byte ring[];
  __shared__ float2 baton[8][32];
  __shared__ float upper[33];
  release();
  const word* table = tableOf<FORM, 5>(p.w);
  Walk<BLOCK, 1> w(p, parts, shift);
  Chunks& now = w.now;
  const int lane = w.lane, warp = w.warp, size = w.size, next = w.next, column = lane / 4, q = lane & 3;
  const int take = keep(1 + warp), give = keep(1 + next);
  const word takeAt = keep((word)__cvta_generic_to_shared(&baton[warp][lane])), giveAt = keep((word)__cvta_generic_to_shared(&baton[next][lane]));
  if (p.jobs) await();
  w.begin(pieces(p, parts));
  const int total = w.total;
  byte* mine = ring + warp * S * BLOCK;
  const word into = (word)__cvta_generic_to_shared(mine) + lane * 16;
#pragma unroll 1
  for (int i = 0; i < S; i++) w.issue(into + i * BLOCK);
  // The address of the row, in either memory: a lane's part of a block, and the stride.
  const byte *codes, *digits, *scales;
  int digitStep, scaleStep, high;
  if (given.x) {
    SuperRow::Space space;
    space.lay(ring + 8 * S * BLOCK, given.cols);
    given.round(space, upper);  // waits for earlier kernels
    codes = (const byte*)space.codes, digits = (const byte*)space.digits + 2 * q, scales = (const byte*)space.scales;
    digitStep = 16, scaleStep = 4, high = 8;
  } else {
    if (!p.jobs) await();
    const int piece = 8 * p.tailRows;
    codes = (const byte*)p.codes, scales = (const byte*)p.tails, digits = scales + piece + 2 * q;
    scaleStep = digitStep = 3 * piece, high = piece;
  }
  codes += 16 * q;
  uint4 acts[4];
  float by;
  int low = 0, times = 0;
  auto ahead = [&] {
    const long long row = given.x || parts.same ? 0 : now.piece.first;
#pragma unroll
    for (int i = 0; i < 4; i++) acts[i] = *(const uint4*)(codes + row * p.codeStride + now.k * 256 + 64 * i);
    by = *(const float*)(scales + row * 8 + (long long)now.k * scaleStep);
    if (F::BIASES) {
      const byte* d = digits + row * 8 + (long long)now.k * digitStep;
      low = *(const unsigned short*)d, times = *(const unsigned short*)(d + high);
    }
  };
  int stage = 0;
  if (w.turn + 1 == size && w.team < total) {
    write2(giveAt, 0, 0);
    if (size > 1) hand(give);
  }
  if (now.item < total) ahead();
  while (now.item < total) {
    arrived<S - 1>();
    __syncwarp();
    const byte* block = mine + stage * BLOCK;
    Closing<FORM> c;
    c.scales(block, lane);
    int sum[2] = {0, 0}, less[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      Pair<FORM> two;
      two.read(block, i, lane, table);
#pragma unroll
      for (int o = 0; o < 2; o++) {
#pragma unroll
        for (int g = 0; g < 2; g++) {
          const int b0 = g ? acts[i].z : acts[i].x, b1 = g ? acts[i].w : acts[i].y;
          if constexpr (FORM == Q2K) less[o] = __dp4a((int)two.least(o, 2 * g), b0, __dp4a((int)two.least(o, 2 * g + 1), b1, less[o]));
          const int half = __dp4a((int)two.a[g][o], b0, 0);
          if constexpr (FORM == TQ)
            sum[o] += __dp4a((int)two.a[g][o + 2], b1, half);
          else if constexpr (F::SMALL)
            sum[o] += two.factor(o, 2 * g) * half + two.factor(o, 2 * g + 1) * __dp4a((int)two.a[g][o + 2], b1, 0);
          else
            sum[o] += two.factor(o, g) * __dp4a((int)two.a[g][o + 2], b1, half);
        }
      }
    }
    float x[2];
#pragma unroll
    for (int o = 0; o < 2; o++) {
      int mine = sum[o], bias = less[o];
      mine += __shfl_xor_sync(~0u, mine, 2);
      mine += __shfl_xor_sync(~0u, mine, 1);
      if constexpr (F::BIASES) {
        const int m = ((const unsigned short*)(block + F::LEAST))[4 * (2 * column + o) + q];
        bias = __dp4a(m, low, 128 * __dp4a(m, times, 0));
      }
      if constexpr (F::BIASES || FORM == Q2K) {
        bias += __shfl_xor_sync(~0u, bias, 1);
        bias += __shfl_xor_sync(~0u, bias, 2);
      }
      x[o] = __fmul_rn((float)mine, c.scale[o]);
      if constexpr (F::BIASES || FORM == Q2K) x[o] = __fmaf_rn((float)bias, c.bias[o], x[o]);
    }
    const float scale = by;
    __syncwarp();
    w.issue(into + stage * BLOCK);
    stage = stage + 1 == S ? 0 : stage + 1;
    const Chunks was = now;
    w.step(now);
    if (now.item < total) ahead();
    const bool last = was.k == w.chunks - 1;

    // The other warps of the team wait from here to hand.
    if (size > 1) meet(take);
    float acc[2];
    read2(acc, takeAt);
#pragma unroll
    for (int o = 0; o < 2; o++) acc[o] = __fmaf_rn(x[o], scale, acc[o]);
    write2(giveAt, last ? 0.0f : acc[0], last ? 0.0f : acc[1]);
    if (size > 1 && (!last || was.item + w.teams < total)) hand(give);
    if (last && q < 2) {  // a lane for each output
      int tile = was.piece.tile;
      const Part& part = partOf(parts, tile);
      put(part, was.piece, 0, tile * 16 + column + 8 * q, q ? acc[1] : acc[0]);
    }
  }
  if (gates.arrived) gates.round(parts);
}
