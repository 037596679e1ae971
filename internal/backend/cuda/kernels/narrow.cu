// Products with plain weights of so few outputs that a multiprocessor has at most one tile: the time is that of the chain of
// multiply-adds of each output's even and odd columns, four cycles each. One warp has only the 32 chains of a tile and one or two
// rows. Other warps load weights and rows through a ring, the weights before the rows are available.
#include "relay.cuh"

#define CHUNK 256                    // columns that come together
#define STAGES 8                     // chunks of the ring
#define STEP 4                       // columns of a chain that are read together
#define AHEAD 8                      // steps that are in registers
#define HALF (CHUNK / 2 + 4)         // from a row's even columns to its odd ones, in other banks
#define ROW (2 * HALF)
#define STRIP 8                      // rows of a block

// all is a barrier that warps come to from several places.
__device__ __forceinline__ void all() { asm volatile("barrier.cta.sync 0;" ::: "memory"); }

// numberOf is column 2k of output o of a chunk, or the odd one after it.
template <int TYPE> __device__ __forceinline__ float numberOf(const byte* chunk, int k, int odd, int o) {
  if (TYPE == F32) return ((const float*)chunk)[16 * (2 * k + odd) + o];
  if (TYPE == F16) return half16(((const unsigned short*)chunk)[16 * (2 * k + odd) + o]);
  return __uint_as_float(__byte_perm(((const word*)chunk)[16 * k + o], 0, odd ? 0x3244 : 0x1044));
}

// Step is the operands of a lane in one step.
template <int TYPE, int ROWS> struct Step {
  float w[STEP];
  float4 x[ROWS][STEP / 4];

  __device__ __forceinline__ void read(const byte* chunk, const float* in, int k, int odd, int o) {
#pragma unroll
    for (int i = 0; i < STEP; i++) w[i] = numberOf<TYPE>(chunk, k + i, odd, o);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int i = 0; i < STEP / 4; i++) x[r][i] = *(const float4*)(in + r * ROW + odd * HALF + k + 4 * i);
  }

  __device__ __forceinline__ void multiply(float (&acc)[ROWS]) const {
#pragma unroll
    for (int i = 0; i < STEP / 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++)
#pragma unroll
        for (int r = 0; r < ROWS; r++) acc[r] = __fmaf_rn(j == 0 ? x[r][i].x : j == 1 ? x[r][i].y : j == 2 ? x[r][i].z : x[r][i].w, w[4 * i + j], acc[r]);
  }
};

// Ring is the chunks that are under way: weights, and then the rows.
template <int TYPE> struct Ring {
  static constexpr int WEIGHTS = CHUNK * 16 * (TYPE == F32 ? 4 : 2);
  byte* at;
  int stage, chunks, cols;

  __device__ __forceinline__ byte* chunk(int c) const { return at + c % STAGES * stage; }

  // multiply computes the chains of a tile and ROWS rows. A barrier says that a chunk is there and that the previous one was read: the
  // last step's numbers are in registers by then.
  template <int ROWS> __device__ __forceinline__ void multiply(float (&acc)[ROWS], int first, int odd, int o) const {
    const int full = cols / CHUNK, skip = WEIGHTS / 4 + first * ROW;
    Step<TYPE, ROWS> steps[AHEAD];
    const byte* now = at;
    all();
    if (full > 0)
#pragma unroll
      for (int i = 0; i < AHEAD; i++) steps[i].read(now, (const float*)now + skip, i * STEP, odd, o);
    int k = 0;  // that is read next
#pragma unroll 1
    for (int c = 0; c < full;) {
      k += AHEAD * STEP;
      if (k == CHUNK / 2) {
        k = 0, c++;
        if (c < chunks) {
          all();
          now = chunk(c);
        }
        if (c == full) break;
      }
#pragma unroll
      for (int i = 0; i < AHEAD; i++) {
        steps[i].multiply(acc);
        steps[i].read(now, (const float*)now + skip, k + i * STEP, odd, o);
      }
    }
    if (full > 0)
#pragma unroll
      for (int i = 0; i < AHEAD; i++) steps[i].multiply(acc);
    const int left = cols - full * CHUNK;
#pragma unroll 1
    for (k = 0; 2 * k + odd < left; k++)
#pragma unroll
      for (int r = 0; r < ROWS; r++) acc[r] = __fmaf_rn(((const float*)now)[skip + r * ROW + odd * HALF + k], numberOf<TYPE>(now, k, odd, o), acc[r]);
  }

  // fill has copy bring chunk after chunk, as many ahead as there is space for.
  template <class Copy> __device__ __forceinline__ void fill(Copy copy) const {
    const word into = (word)__cvta_generic_to_shared(at);
#pragma unroll 1
    for (int c = 1 - STAGES; c < chunks; c++) {
      if (c >= 0) {
        arrived<STAGES - 2>();
        all();
      }
      const int ahead = c + STAGES - 1;
      if (ahead < chunks) copy(into + ahead % STAGES * stage, ahead);
      commit();
    }
    arrived<0>();
  }
};

// narrow: of a block's eight warps four multiply, one or two rows each, two copy weights and two the rows.
template <int TYPE> __device__ __forceinline__ void narrow(const Product& p, const Parts& parts) {
  extern __shared__ __align__(16) byte ring[];
  constexpr int WEIGHTS = Ring<TYPE>::WEIGHTS;
  release();
  int tile = blockIdx.x;
  const Part& part = partOf(parts, tile);
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, r0 = blockIdx.y * STRIP, rows = min(STRIP, p.rows - r0), cols = p.w.cols;
  const Ring<TYPE> chunks = {ring, WEIGHTS + min(STRIP, p.rows) * ROW * 4, (cols + CHUNK - 1) / CHUNK, cols};
  if (warp >= 6) {
    const int t = threadIdx.x - 192;
    const float* x = p.x + (long long)r0 * p.xStride;
    await();
    chunks.fill([&](word to, int c) {
      to += WEIGHTS + (t & 1) * (HALF * 4) + t / 2 * 4;
#pragma unroll 1
      for (int r = 0; r < rows; r++)
#pragma unroll
        for (int i = 0; i < CHUNK; i += 64)
          if (c * CHUNK + i + t < cols)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to + r * (ROW * 4) + i * 2), "l"(x + (long long)r * p.xStride + c * CHUNK + i + t) : "memory");
    });
    return;
  }
  if (warp >= 4) {
    const int t = (threadIdx.x - 128) * 16, end = p.w.tileBytes;
    const byte* from = part.data + (long long)tile * p.w.tileBytes + t;
    chunks.fill([&](word to, int c) {
#pragma unroll
      for (int i = 0; i < WEIGHTS; i += 1024)
        if (c * WEIGHTS + i + t < end) copy16(to + i + t, from + c * WEIGHTS + i);
    });
    return;
  }
  const int o = lane & 15, odd = lane >> 4, per = rows > 4 ? 2 : 1, first = per * warp, out = tile * 16 + o;
  float acc[2] = {0, 0};
  if (per == 2 && first + 1 < rows) {
    chunks.template multiply<2>(acc, first, odd, o);
  } else if (first < rows) {
    float one[1] = {0};
    chunks.template multiply<1>(one, first, odd, o);
    acc[0] = one[0];
  } else {
#pragma unroll 1
    for (int c = 0; c < chunks.chunks; c++) all();
  }
  await();
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float sum = __fadd_rn(acc[r], __shfl_xor_sync(~0u, acc[r], 16));
    if (odd || r >= per || first + r >= rows || out >= part.rows) continue;
    float* y = part.dst + (long long)(r0 + first + r) * part.dstStride + out;
    if (part.add) sum = __fadd_rn(*y, sum);
    if (part.bias) sum = __fadd_rn(sum, part.bias[out]);
    *y = sum;
  }
}

// Kernel narrow_TYPE: GEMV and small-M GEMM with bf16, f16 or f32 weights of few outputs, where the latency of the chains
//   decides: producer warps copy, consumer warps compute chains only. Up to eight matrices are one launch.
// Layout: as in floats.
// Grid: x: tiles of 16 outputs, y: strips of 8 rows.
// Sums: per output one chain of fused multiply-adds over the even columns, one over the odd ones, and their sum (floatTiles
//   of the CPU).
#define NARROW(NAME, TYPE) \
  extern "C" __global__ void __launch_bounds__(256, 1) NAME(const __grid_constant__ Product p, const __grid_constant__ Parts parts) { narrow<TYPE>(p, parts); }

NARROW(narrow_bf16, BF16)
NARROW(narrow_f16, F16)
NARROW(narrow_f32, F32)
