// Kernels of the study that the CUDA backend will grow from, for the tests of the interpreter:
// norm, SwiGLU, delta rule, attention, candidates, and the products of three kinds (relay through
// named barriers with a ring of asynchronous copies, the same with a persistent grid, and tiles of
// tensor cores for prompts). Compiled to study.ptx by
//
//   nvcc -O3 -std=c++17 -fmad=false --expt-relaxed-constexpr -arch=compute_90 -ptx study.cu -o study.ptx
//
// Arithmetic is by intrinsics that round to nearest only, so that no compiler fuses anything.
#include <cstdint>
#include <cuda_fp16.h>

#define MAGIC 0x4B400000
#define MAGICF 12582912.0f

__device__ __forceinline__ void pdlWait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void pdlGo() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void mma(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// the codes of 16 outputs x 64 k as A operands of two mma
template <int BITS> struct Codes { uint32_t a[8]; };
template <int BITS> __device__ __forceinline__ void unpack(uint32_t (&a)[8], const uint4 (&w)[BITS / 4]) {
  if constexpr (BITS == 4) {
    const uint32_t m = 0x0f0f0f0f;
    a[0] = w[0].x & m; a[1] = w[0].y & m; a[2] = w[0].z & m; a[3] = w[0].w & m;
    a[4] = (w[0].x >> 4) & m; a[5] = (w[0].y >> 4) & m; a[6] = (w[0].z >> 4) & m; a[7] = (w[0].w >> 4) & m;
  } else {
    a[0] = w[0].x; a[1] = w[0].y; a[2] = w[0].z; a[3] = w[0].w;
    a[4] = w[1].x; a[5] = w[1].y; a[6] = w[1].z; a[7] = w[1].w;
  }
}
__device__ __forceinline__ void ints(int (&d)[4], const uint32_t (&a)[8], uint4 b) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%10,%10,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(MAGIC));
  mma(d, a[4], a[5], a[6], a[7], b.z, b.w);
}
__device__ __forceinline__ float intf(int d) { return __fsub_rn(__int_as_float(d), MAGICF); }
__device__ __forceinline__ float lowf(uint32_t w) { return __uint_as_float(w << 16); }
__device__ __forceinline__ float highf(uint32_t w) { return __uint_as_float(w & 0xffff0000u); }
__device__ __forceinline__ uint4 ldcs4(const uint4* p) { return __ldcs(p); }

struct MM {
  const uint4* codes; const uint32_t* scales; const uint4* acts; const float4* tails;
  float* out; int groups, tiles, rows, ldo, add;
};

__device__ __forceinline__ void put(const MM& p, int row, int o, float v) {
  float* q = p.out + (size_t)row * p.ldo + o;
  *q = p.add ? __fadd_rn(*q, v) : v;
}

// P: 128 outputs x 128 rows by a block; a warp has 32 outputs x 64 rows in registers.
__device__ __forceinline__ void cp16(void* dst, const void* src) {
  uint32_t d = (uint32_t)__cvta_generic_to_shared(dst);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(d), "l"(src));
}
template <int BITS, int STAGES>
__device__ __forceinline__ void mmP(MM p) {
  constexpr int V = BITS / 4, WB = 8 * 512 * V, SB = 512, AB = 16 * 512, TB = 1024, STAGE = WB + SB + AB + TB;
  extern __shared__ char sh[];
  int tid = threadIdx.x, lane = tid & 31, warp = tid / 32, wo = warp & 3, wr = warp >> 2;
  int tile0 = blockIdx.x * 8, strip0 = blockIdx.y * 16;
  auto load = [&](int st, int g) {
    if (g < p.groups) {
      char* base = sh + st * STAGE;
#pragma unroll
      for (int v = 0; v < V; v++) {
        int i = tid + v * 256, t = i / (32 * V), r = i % (32 * V);
        cp16(base + i * 16, p.codes + ((size_t)(tile0 + t) * p.groups + g) * 32 * V + r);
      }
      if (tid < 32) cp16(base + WB + tid * 16, p.scales + ((size_t)(tile0 + tid / 4) * p.groups + g) * 16 + (tid & 3) * 4);
#pragma unroll
      for (int v = 0; v < 2; v++) {
        int i = tid + v * 256;
        cp16(base + WB + SB + i * 16, p.acts + ((size_t)(strip0 + i / 32) * p.groups + g) * 32 + (i & 31));
      }
      if (tid >= 64 && tid < 128) {
        int i = tid - 64;
        cp16(base + WB + SB + AB + i * 16, p.tails + ((size_t)(strip0 + i / 4) * p.groups + g) * 4 + (i & 3));
      }
    }
    asm volatile("cp.async.commit_group;");
  };
  float acc[2][8][4];
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
      for (int j = 0; j < 4; j++) acc[i][n][j] = 0;
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) load(s, s);
  for (int g = 0; g < p.groups; g++) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
    __syncthreads();
    load((g + STAGES - 1) % STAGES, g + STAGES - 1);
    const char* base = sh + (g % STAGES) * STAGE;
    uint32_t a[2][8]; uint32_t s[2][2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint4 w[V];
#pragma unroll
      for (int v = 0; v < V; v++) w[v] = ((const uint4*)base)[((wo * 2 + i) * V + v) * 32 + lane];
      unpack<BITS>(a[i], w);
      const uint32_t* sp = (const uint32_t*)(base + WB) + (wo * 2 + i) * 16 + lane / 4;
      s[i][0] = sp[0]; s[i][1] = sp[8];
    }
#pragma unroll
    for (int n = 0; n < 8; n++) {
      uint4 b = ((const uint4*)(base + WB + SB))[(wr * 8 + n) * 32 + lane];
      float4 t = ((const float4*)(base + WB + SB + AB))[(wr * 8 + n) * 4 + (lane & 3)];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        int d[4];
        ints(d, a[i], b);
        float s0 = lowf(s[i][0]), s1 = lowf(s[i][1]), b0 = highf(s[i][0]), b1 = highf(s[i][1]), x;
        x = __fmul_rn(intf(d[0]), t.x); acc[i][n][0] = __fmaf_rn(b0, t.y, __fmaf_rn(x, s0, acc[i][n][0]));
        x = __fmul_rn(intf(d[1]), t.z); acc[i][n][1] = __fmaf_rn(b0, t.w, __fmaf_rn(x, s0, acc[i][n][1]));
        x = __fmul_rn(intf(d[2]), t.x); acc[i][n][2] = __fmaf_rn(b1, t.y, __fmaf_rn(x, s1, acc[i][n][2]));
        x = __fmul_rn(intf(d[3]), t.z); acc[i][n][3] = __fmaf_rn(b1, t.w, __fmaf_rn(x, s1, acc[i][n][3]));
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        int row = (strip0 + wr * 8 + n) * 8 + (lane & 3) * 2 + (j & 1);
        int o = (tile0 + wo * 2 + i) * 16 + lane / 4 + (j >> 1) * 8;
        if (row < p.rows) put(p, row, o, acc[i][n][j]);
      }
}
__device__ __forceinline__ void cp16s(uint32_t dst, const void* src) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
}
__device__ __forceinline__ void barSync2(int id) { asm volatile("barrier.cta.sync %0, 64;" ::"r"(id) : "memory"); }
__device__ __forceinline__ void barArrive2(int id) { asm volatile("barrier.cta.arrive %0, 64;" ::"r"(id) : "memory"); }

// F: a tile of 16 outputs by TW warps in relay, weights through a ring of asynchronous copies.
template <int BITS, int NB, int G, int TW, int S, bool ORDERED>
__device__ __forceinline__ void mmF(MM p) {
  constexpr int V = BITS / 4, TPB = 8 / TW;
  __shared__ float baton[TW > 1 ? 8 : 1][NB * 4][32];
  pdlGo();
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, w = warp % TW, tile = blockIdx.x * TPB + warp / TW;
  if (tile >= p.tiles) { pdlWait(); return; }
  const int C = p.groups / G, next = w + 1 == TW ? warp + 1 - TW : warp + 1;
  const size_t blk = (size_t)tile * p.groups + w * G;
  const uint4* wp = p.codes + blk * 32 * V + lane;
  const uint4* ap = p.acts + (size_t)w * G * 32 + lane;
  const float4* tp = p.tails + (size_t)w * G * 4 + (lane & 3);
  const size_t as = (size_t)p.groups * 32, tsn = (size_t)p.groups * 4;
  constexpr int CB = G * V * 512, SB = CB + G * 64;
  extern __shared__ __align__(16) char ringF[];
  char* ring = ringF + warp * S * SB;
  const uint32_t into = (uint32_t)__cvta_generic_to_shared(ring) + lane * 16;
  const uint4* sp16 = (const uint4*)p.scales + blk * 4 + lane;
  int left = (C - w + TW - 1) / TW;  // chunks still to be asked for
  auto issue = [&](uint32_t at) {
    if (left > 0) {
#pragma unroll
      for (int g = 0; g < G * V; g++) cp16s(into + at + g * 512, wp + g * 32);
      if (lane < G * 4) cp16s(into + at + CB, sp16);
    }
    left--;
    wp += TW * G * V * 32; sp16 += TW * G * 4;
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  uint4 a[NB][G]; float4 t[NB][G];
  bool arow[NB], trow[NB];
#pragma unroll
  for (int n = 0; n < NB; n++) {
    arow[n] = n * 8 + lane / 4 < p.rows; trow[n] = n * 8 + (lane & 3) * 2 < p.rows;
#pragma unroll
    for (int g = 0; g < G; g++) { a[n][g] = make_uint4(0, 0, 0, 0); t[n][g] = make_float4(0, 0, 0, 0); }
  }
  auto acts = [&]() {
#pragma unroll
    for (int n = 0; n < NB; n++)
#pragma unroll
      for (int g = 0; g < G; g++) {
        if (arow[n]) a[n][g] = __ldg(ap + n * as + g * 32);
        if (trow[n]) t[n][g] = __ldg(tp + n * tsn + g * 4);
      }
    ap += TW * G * 32; tp += TW * G * 4;
  };
  float acc[NB][4];
#pragma unroll
  for (int n = 0; n < NB; n++)
#pragma unroll
    for (int j = 0; j < 4; j++) acc[n][j] = 0;
  uint32_t slot = 0;
  auto step = [&](int k) {
    asm volatile("cp.async.wait_group %0;" ::"n"(S - 1) : "memory");
    __syncwarp();
    uint2 sc[G];
#pragma unroll
    for (int g = 0; g < G; g++) sc[g] = ((const uint2*)(ring + slot + CB))[g * 8 + lane / 4];
    float x[G][NB][4], ss[G][NB][2];
#pragma unroll
    for (int g = 0; g < G; g++) {
      uint32_t c[8];
      uint4 cw[V];
#pragma unroll
      for (int v = 0; v < V; v++) cw[v] = ((const uint4*)(ring + slot))[(g * V + v) * 32 + lane];
      unpack<BITS>(c, cw);
#pragma unroll
      for (int n = 0; n < NB; n++) {
        int d[4];
        ints(d, c, a[n][g]);
        x[g][n][0] = __fmul_rn(intf(d[0]), t[n][g].x); x[g][n][1] = __fmul_rn(intf(d[1]), t[n][g].z);
        x[g][n][2] = __fmul_rn(intf(d[2]), t[n][g].x); x[g][n][3] = __fmul_rn(intf(d[3]), t[n][g].z);
        ss[g][n][0] = t[n][g].y; ss[g][n][1] = t[n][g].w;
      }
    }
    __syncwarp();
    issue(slot);
    slot = slot == (S - 1) * SB ? 0 : slot + SB;
    if (k + TW < C) acts();
    if (TW > 1 && ORDERED && k > 0) {
      barSync2(1 + warp);
#pragma unroll
      for (int n = 0; n < NB; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) acc[n][j] = baton[warp][n * 4 + j][lane];
    }
#pragma unroll
    for (int g = 0; g < G; g++) {
      float s0 = lowf(sc[g].x), s1 = lowf(sc[g].y), o0 = highf(sc[g].x), o1 = highf(sc[g].y);
#pragma unroll
      for (int n = 0; n < NB; n++)
#pragma unroll
        for (int j = 0; j < 4; j++)
          acc[n][j] = __fmaf_rn(j < 2 ? o0 : o1, ss[g][n][j & 1], __fmaf_rn(x[g][n][j], j < 2 ? s0 : s1, acc[n][j]));
    }
    if (TW > 1 && ORDERED && k + 1 < C) {
#pragma unroll
      for (int n = 0; n < NB; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) baton[next][n * 4 + j][lane] = acc[n][j];
      barArrive2(1 + next);
    }
  };
#pragma unroll
  for (int i = 0; i < S; i++) issue(i * SB);
  pdlWait();
  if (w < C) acts();
  for (int k = w; k < C; k += TW) step(k);
  bool mine = ORDERED ? (C - 1) % TW == w : w == 0;
  if (!ORDERED && TW > 1) {
#pragma unroll
    for (int n = 0; n < NB; n++)
#pragma unroll
      for (int j = 0; j < 4; j++) baton[warp][n * 4 + j][lane] = acc[n][j];
    __syncthreads();
    if (mine)
#pragma unroll
      for (int n = 0; n < NB; n++)
#pragma unroll
        for (int j = 0; j < 4; j++)
          for (int i = 1; i < TW; i++) acc[n][j] += baton[warp + i][n * 4 + j][lane];
  }
  if (mine)
#pragma unroll
    for (int n = 0; n < NB; n++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        int row = n * 8 + (lane & 3) * 2 + (j & 1);
        if (row < p.rows) put(p, row, tile * 16 + lane / 4 + (j >> 1) * 8, acc[n][j]);
      }
}
// G: F with a persistent grid: the ring runs on across the tiles of a team.
template <int BITS, int NB, int G, int TW, int S, int BLOCKS>
__device__ __forceinline__ void mmG(MM p) {
  constexpr int V = BITS / 4, TPB = 8 / TW;
  __shared__ float baton[TW > 1 ? 8 : 1][NB * 4][32];
  pdlGo();
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, w = warp % TW, team = blockIdx.x * TPB + warp / TW, teams = gridDim.x * TPB;
  if (team >= p.tiles) { pdlWait(); return; }
  const int C = p.groups / G, next = w + 1 == TW ? warp + 1 - TW : warp + 1;
  const size_t blk = (size_t)team * p.groups + w * G;
  const uint4* wp = p.codes + blk * 32 * V + lane;
  const uint4* ap = p.acts + (size_t)w * G * 32 + lane;
  const float4* tp = p.tails + (size_t)w * G * 4 + (lane & 3);
  const size_t as = (size_t)p.groups * 32, tsn = (size_t)p.groups * 4;
  constexpr int CB = G * V * 512, SB = CB + G * 64;
  extern __shared__ __align__(16) char ringG[];
  char* ring = ringG + warp * S * SB;
  const uint32_t into = (uint32_t)__cvta_generic_to_shared(ring) + lane * 16;
  const uint4* sp16 = (const uint4*)p.scales + blk * 4 + lane;
  const int mine = (p.tiles - team + teams - 1) / teams, per = C / TW;  // tiles of the team; chunks of a warp per tile: C is a multiple of TW
  const size_t jump = (size_t)(teams - 1) * p.groups;                  // blocks between the end of a tile and the next of the team
  int left = mine * per, inTile = 0;
  auto issue = [&](uint32_t at) {
    if (left > 0) {
#pragma unroll
      for (int g = 0; g < G * V; g++) cp16s(into + at + g * 512, wp + g * 32);
      if (lane < G * 4) cp16s(into + at + CB, sp16);
    }
    left--;
    wp += TW * G * V * 32; sp16 += TW * G * 4;
    if (++inTile == per) { inTile = 0; wp += jump * V * 32; sp16 += jump * 4; }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  uint4 a[NB][G]; float4 t[NB][G];
  bool arow[NB], trow[NB];
#pragma unroll
  for (int n = 0; n < NB; n++) {
    arow[n] = n * 8 + lane / 4 < p.rows; trow[n] = n * 8 + (lane & 3) * 2 < p.rows;
#pragma unroll
    for (int g = 0; g < G; g++) { a[n][g] = make_uint4(0, 0, 0, 0); t[n][g] = make_float4(0, 0, 0, 0); }
  }
  auto acts = [&]() {
#pragma unroll
    for (int n = 0; n < NB; n++)
#pragma unroll
      for (int g = 0; g < G; g++) {
        if (arow[n]) a[n][g] = __ldg(ap + n * as + g * 32);
        if (trow[n]) t[n][g] = __ldg(tp + n * tsn + g * 4);
      }
    ap += TW * G * 32; tp += TW * G * 4;
  };
  float acc[NB][4];
#pragma unroll
  for (int n = 0; n < NB; n++)
#pragma unroll
    for (int j = 0; j < 4; j++) acc[n][j] = 0;
  uint32_t slot = 0;
  auto step = [&](int tile, int k) {
    asm volatile("cp.async.wait_group %0;" ::"n"(S - 1) : "memory");
    __syncwarp();
    uint2 sc[G];
#pragma unroll
    for (int g = 0; g < G; g++) sc[g] = ((const uint2*)(ring + slot + CB))[g * 8 + lane / 4];
    float x[G][NB][4], ss[G][NB][2];
#pragma unroll
    for (int g = 0; g < G; g++) {
      uint32_t c[8];
      uint4 cw[V];
#pragma unroll
      for (int v = 0; v < V; v++) cw[v] = ((const uint4*)(ring + slot))[(g * V + v) * 32 + lane];
      unpack<BITS>(c, cw);
#pragma unroll
      for (int n = 0; n < NB; n++) {
        int d[4];
        ints(d, c, a[n][g]);
        x[g][n][0] = __fmul_rn(intf(d[0]), t[n][g].x); x[g][n][1] = __fmul_rn(intf(d[1]), t[n][g].z);
        x[g][n][2] = __fmul_rn(intf(d[2]), t[n][g].x); x[g][n][3] = __fmul_rn(intf(d[3]), t[n][g].z);
        ss[g][n][0] = t[n][g].y; ss[g][n][1] = t[n][g].w;
      }
    }
    __syncwarp();
    issue(slot);
    slot = slot == (S - 1) * SB ? 0 : slot + SB;
    if (k + TW >= C) { ap -= (size_t)C * G * 32; tp -= (size_t)C * G * 4; }
    acts();
    if (TW > 1 && (k > 0 || tile != team)) barSync2(1 + warp);  // strictly in turn, across tiles too
    if (k == 0 || TW > 1) {
#pragma unroll
      for (int n = 0; n < NB; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) acc[n][j] = k == 0 ? 0.f : baton[TW > 1 ? warp : 0][n * 4 + j][lane];
    }
#pragma unroll
    for (int g = 0; g < G; g++) {
      float s0 = lowf(sc[g].x), s1 = lowf(sc[g].y), o0 = highf(sc[g].x), o1 = highf(sc[g].y);
#pragma unroll
      for (int n = 0; n < NB; n++)
#pragma unroll
        for (int j = 0; j < 4; j++)
          acc[n][j] = __fmaf_rn(j < 2 ? o0 : o1, ss[g][n][j & 1], __fmaf_rn(x[g][n][j], j < 2 ? s0 : s1, acc[n][j]));
    }
    const bool last = k == C - 1;
    if (TW > 1 && !last) {
#pragma unroll
      for (int n = 0; n < NB; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) baton[next][n * 4 + j][lane] = acc[n][j];
    }
    if (TW > 1 && (!last || tile + teams < p.tiles)) barArrive2(1 + next);
    if (last)
#pragma unroll
      for (int n = 0; n < NB; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
          int row = n * 8 + (lane & 3) * 2 + (j & 1);
          if (row < p.rows) put(p, row, tile * 16 + lane / 4 + (j >> 1) * 8, acc[n][j]);
        }
  };
#pragma unroll
  for (int i = 0; i < S; i++) issue(i * SB);
  pdlWait();
  acts();
  for (int tile = team; tile < p.tiles; tile += teams)
    for (int k = w; k < C; k += TW) step(tile, k);
}
__device__ __forceinline__ float fm(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float fa(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float fs(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ float ff(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ float pow2i(int k) { return __int_as_float((k + 127) << 23); }
__device__ __forceinline__ float expx(float x) {
  if (x != x) return x;
  if (x < -87.33654f) return 0;
  if (x > 88.72283f) return __int_as_float(0x7f800000);
  const float rnd_ = 12582912.0f;
  float t = ff(x, 1.44269504f, rnd_), n = fs(t, rnd_);
  float hi = ff(n, -0.693145751953125f, x), lo = fm(n, -1.42860682030941723212e-6f), r = fa(hi, lo);
  float q = ff(0.000198909882f, r, 0.00139336474f);
  q = ff(q, r, 0.00833331048f); q = ff(q, r, 0.0416664667f); q = ff(q, r, 0.166666672f); q = ff(q, r, 0.5f);
  float one = fa(1.f, hi), lost = fs(hi, fs(one, 1.f));
  float p = fa(one, fa(lost, ff(fm(r, r), q, lo)));
  int k = (int)n, h = k >> 1;
  return fm(fm(p, pow2i(h)), pow2i(k - h));
}
__device__ __forceinline__ float sigmoidx(float x) {
  float e = expx(-fabsf(x)), y = ff(-e, __fdiv_rn(e, fa(1.f, e)), e);
  return x < 0 ? y : fs(1.f, y);
}
__device__ __forceinline__ float silux(float x) {
  float e = expx(-fabsf(x)), p = fm(x, e);
  float y = fa(p, ff(-p, __fdiv_rn(e, fa(1.f, e)), ff(x, e, -p)));
  return x < 0 ? y : fs(x, y);
}
__device__ __forceinline__ float softplusx(float x) {
  float y = expx(-fabsf(x)), s = __fdiv_rn(y, fa(2.f, y)), z = fm(s, s);
  float h = ff((float)(2.0 / 17), z, (float)(2.0 / 15));
  h = ff(h, z, (float)(2.0 / 13)); h = ff(h, z, (float)(2.0 / 11)); h = ff(h, z, (float)(2.0 / 9));
  h = ff(h, z, (float)(2.0 / 7)); h = ff(h, z, (float)(2.0 / 5)); h = ff(h, z, (float)(2.0 / 3));
  return fa(fmaxf(x, 0.f), ff(-s, ff(-z, h, y), y));
}
__device__ __forceinline__ float rsqrtx(float x) { return __fdiv_rn(1.f, __fsqrt_rn(x)); }

// sum of 16 lanes, halves onto halves: lane i of the 16 has partial sum i; all get the sum
__device__ __forceinline__ float sum16(float a) {
  for (int w = 8; w > 0; w >>= 1) a = fa(a, __shfl_xor_sync(0xffffffffu, a, w));
  return a;
}

struct Acts { uint8_t* codes; float* tails; int groups; };
// a warp quantizes 64 numbers, lane i has 2i and 2i+1
__device__ __forceinline__ void quantize64(const Acts& a, int row, int g, float x0, float x1) {
  int lane = threadIdx.x & 31;
  uint32_t top = max(__float_as_uint(x0) & 0x7fffffffu, __float_as_uint(x1) & 0x7fffffffu);
  top = __reduce_max_sync(0xffffffffu, top);
  float amax = __uint_as_float(top), scale = 0, inv = 0;
  int n0 = 0, n1 = 0;
  bool nan = top >= 0x7f800000u;
  if (top != 0 && !nan) {
    inv = __fdiv_rn(127.f, amax);
    if (inv <= 3.402823466e38f) {
      scale = __fdiv_rn(amax, 127.f);
      n0 = (int)fa(fm(x0, inv), 12582912.0f) - 12582912; n1 = (int)fa(fm(x1, inv), 12582912.0f) - 12582912;
      n0 = min(max(n0, -127), 127); n1 = min(max(n1, -127), 127);
    }
  }
  int total = __reduce_add_sync(0xffffffffu, n0 + n1);
  size_t blk = (size_t)(row / 8) * a.groups + g;
  int k = 2 * lane;
  *(uint16_t*)(a.codes + blk * 512 + ((row & 7) * 4 + (k & 15) / 4) * 16 + (k >> 4) * 4 + (k & 3)) = (uint16_t)((n0 & 255) | (n1 & 255) << 8);
  if (lane == 0) {
    float nn = __int_as_float(0x7fc00000);
    a.tails[blk * 16 + (row & 7) * 2] = nan ? nn : scale;
    a.tails[blk * 16 + (row & 7) * 2 + 1] = nan ? nn : fm((float)total, scale);
  }
}

// RMSNorm of a row and its quantized form. A block has a row. FREE: sum in any order.
template <bool FREE>
__device__ __forceinline__ void normQ(const float* x, const float* gain, float* y, Acts a, int cols, float eps) {
  extern __shared__ float row[];
  __shared__ float red[17];
  int r = blockIdx.x, tid = threadIdx.x;  // gridDim.y blocks have the same row: each norms it, and quantizes its part
  pdlGo(); pdlWait();
  for (int i = tid; i < cols / 4; i += blockDim.x) ((float4*)row)[i] = ((const float4*)(x + (size_t)r * cols))[i];
  __syncthreads();
  if (FREE) {
    float s = 0;
    for (int i = tid; i < cols; i += blockDim.x) s = ff(row[i], row[i], s);
    for (int w = 16; w > 0; w >>= 1) s += __shfl_xor_sync(0xffffffffu, s, w);
    if (tid % 32 == 0) red[tid / 32] = s;
    __syncthreads();
    if (tid == 0) { float q = 0; for (int i = 0; i < (int)blockDim.x / 32; i++) q += red[i]; red[16] = rsqrtx(fa(__fdiv_rn(q, (float)cols), eps)); }
  } else if (tid < 32) {
    float s = 0;
    int l = tid & 15;
#pragma unroll 16
    for (int i = 0; i < cols / 16; i++) { float v = row[i * 16 + l]; s = ff(v, v, s); }
    s = sum16(s);
    if (tid == 0) red[16] = rsqrtx(fa(__fdiv_rn(s, (float)cols), eps));
  }
  __syncthreads();
  float scale = red[16];
  int lane = tid & 31;
  for (int g = blockIdx.y * (blockDim.x / 32) + tid / 32; g < cols / 64; g += gridDim.y * blockDim.x / 32) {
    int c = g * 64 + 2 * lane;
    float v0 = fm(fm(row[c], scale), gain[c]), v1 = fm(fm(row[c + 1], scale), gain[c + 1]);
    if (y) { y[(size_t)r * cols + c] = v0; y[(size_t)r * cols + c + 1] = v1; }
    quantize64(a, r, g, v0, v1);
  }
}

// silu(gate)*up and its quantized form; gate and up are halves of a row. A warp has a group.
extern "C" __global__ void __launch_bounds__(256) swigluQ(const float* gu, Acts a, int cols, float* y) {
  pdlGo(); pdlWait();
  int g = blockIdx.x * 8 + threadIdx.x / 32, r = blockIdx.y, lane = threadIdx.x & 31;
  if (g >= cols / 64) return;
  const float* p = gu + (size_t)r * 2 * cols + g * 64 + 2 * lane;
  float2 ga = *(const float2*)p, up = *(const float2*)(p + cols);
  float v0 = fm(silux(ga.x), up.x), v1 = fm(silux(ga.y), up.y);
  if (y) { y[(size_t)r * cols + g * 64 + 2 * lane] = v0; y[(size_t)r * cols + g * 64 + 2 * lane + 1] = v1; }
  quantize64(a, r, g, v0, v1);
}

// ---- delta rule ----
struct Delta {
  int keyHeads, valueHeads, rows, guesses, kept;   // one sequence per blockIdx.y
  const float *qkv; int ldq;                        // [rows, channels]
  const float *z, *b, *a; int ldz, ldb;             // [rows, ...]
  const float *conv, *rate, *bias, *norm;
  float *state, *tail, *keys, *deltas, *decays;     // of the layer, all sequences one after another
  size_t seqFloats;                                 // between sequences of each of them: state
  float *q, *k, *v, *kq, *decay, *beta, *out;       // scratch
};
// convolution, normalized queries and keys, gates: a block has a key head and a row
extern "C" __global__ void __launch_bounds__(256) deltaMix(Delta d) {
  pdlGo(); pdlWait();
  int m = blockIdx.x, t = blockIdx.y, seq = blockIdx.z, tid = threadIdx.x, KH = d.keyHeads, VH = d.valueHeads, share = VH / KH;
  int channels = 2 * KH * 128 + VH * 128, r = seq * d.rows + t;
  __shared__ float y[256];
  __shared__ float sc[3];
  const float* tail = d.tail + (size_t)seq * (3 + 8) * channels;
  for (int i = tid; i < 256 + share * 128; i += 256) {
    int c = i < 128 ? m * 128 + i : i < 256 ? (KH + m) * 128 + i - 128 : 2 * KH * 128 + m * share * 128 + i - 256;
    float s = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      int tt = t - 3 + j;
      float x = tt >= 0 ? d.qkv[(size_t)(seq * d.rows + tt) * d.ldq + c] : tail[(size_t)(d.kept + 3 + tt) * channels + c];
      float w = d.conv[j * channels + c];
      s = j == 0 ? fm(w, x) : ff(w, x, s);
    }
    s = silux(s);
    if (i < 256) y[i] = s;
    else d.v[(size_t)r * VH * 128 + m * share * 128 + i - 256] = s;
  }
  __syncthreads();
  if (tid < 64) {  // warp 0: query, warp 1: key; 16 lanes
    const float* p = y + (tid / 32) * 128;
    int l = tid & 15;
    float s = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) s = ff(p[i * 16 + l], p[i * 16 + l], s);
    s = sum16(s);
    if ((tid & 31) == 0) sc[tid / 32] = fm(rsqrtx(fa(s, 1e-6f)), tid < 32 ? rsqrtx(128.f) : 1.f);
  }
  __syncthreads();
  float v = fm(y[tid], sc[tid / 128]);
  __syncthreads();
  y[tid] = v;
  (tid < 128 ? d.q : d.k)[(size_t)r * KH * 128 + m * 128 + (tid & 127)] = v;
  __syncthreads();
  if (tid < 32) {
    int l = tid & 15;
    float s = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) s = ff(y[128 + i * 16 + l], y[i * 16 + l], s);
    s = sum16(s);
    if (tid == 0) d.kq[(size_t)r * KH + m] = s;
  }
  if (tid >= 64 && tid < 64 + share) {
    int h = m * share + tid - 64;
    d.decay[(size_t)r * VH + h] = expx(fm(d.rate[h], softplusx(fa(d.a[(size_t)r * d.ldb + h], d.bias[h]))));
    d.beta[(size_t)r * VH + h] = sigmoidx(d.b[(size_t)r * d.ldb + h]);
  }
}
// the recurrence: a block has 32 columns of a value head, a thread one column and keys of one
// residue mod 4; the state stays in registers over all rows
extern "C" __global__ void __launch_bounds__(128) deltaRecur(Delta d) {
  __shared__ __align__(16) float ks[2][4 * 36];
  int h = blockIdx.x / 4, strip = blockIdx.x % 4, seq = blockIdx.y, tid = threadIdx.x, lane = tid & 31, warp = tid / 32;
  int KH = d.keyHeads, VH = d.valueHeads, m = h / (VH / KH), chain = lane & 3, col = strip * 32 + warp * 8 + lane / 4;
  float* st = d.state + (size_t)seq * d.seqFloats + (size_t)h * 128 * 128 + col;
  float s[32];
  pdlGo();
#pragma unroll
  for (int j = 0; j < 32; j++) s[j] = st[(size_t)(4 * j + chain) * 128];  // no earlier kernel of the pass writes it
  pdlWait();
  int sure = d.rows - d.guesses, left = sure + d.kept;
  auto bring = [&](const float* k, const float* q) {  // key i to [i%4][i/4]
    __syncthreads();
    ks[0][(tid & 3) * 36 + tid / 4] = k[tid];
    if (q) ks[1][(tid & 3) * 36 + tid / 4] = q[tid];
    __syncthreads();
  };
  auto change = [&](float delta, float decay) {
#pragma unroll
    for (int j = 0; j < 32; j += 4) {
      float4 k = *(const float4*)(ks[0] + chain * 36 + j);
      s[j] = ff(k.x, delta, fm(decay, s[j])); s[j + 1] = ff(k.y, delta, fm(decay, s[j + 1]));
      s[j + 2] = ff(k.z, delta, fm(decay, s[j + 2])); s[j + 3] = ff(k.w, delta, fm(decay, s[j + 3]));
    }
    if (--left == 0)
#pragma unroll
      for (int j = 0; j < 32; j++) st[(size_t)(4 * j + chain) * 128] = s[j];
  };
  const int G = 8;
  for (int j = 0; j < d.kept; j++) {
    bring(d.keys + ((size_t)seq * G + j) * KH * 128 + m * 128, nullptr);
    change(d.deltas[((size_t)seq * G + j) * VH * 128 + h * 128 + col], d.decays[((size_t)seq * G + j) * VH + h]);
  }
  for (int t = 0; t < d.rows; t++) {
    int r = seq * d.rows + t;
    float v = d.v[(size_t)r * VH * 128 + h * 128 + col], decay = d.decay[(size_t)r * VH + h], beta = d.beta[(size_t)r * VH + h], kq = d.kq[(size_t)r * KH + m];
    bring(d.k + (size_t)r * KH * 128 + m * 128, d.q + (size_t)r * KH * 128 + m * 128);
    float u = 0, w = 0;
#pragma unroll
    for (int j = 0; j < 32; j += 4) {
      float4 k = *(const float4*)(ks[0] + chain * 36 + j), q = *(const float4*)(ks[1] + chain * 36 + j);
      u = ff(s[j], k.x, u); w = ff(s[j], q.x, w); u = ff(s[j + 1], k.y, u); w = ff(s[j + 1], q.y, w);
      u = ff(s[j + 2], k.z, u); w = ff(s[j + 2], q.z, w); u = ff(s[j + 3], k.w, u); w = ff(s[j + 3], q.w, w);
    }
    u = fa(u, __shfl_xor_sync(0xffffffffu, u, 1)); u = fa(u, __shfl_xor_sync(0xffffffffu, u, 2));
    w = fa(w, __shfl_xor_sync(0xffffffffu, w, 1)); w = fa(w, __shfl_xor_sync(0xffffffffu, w, 2));
    float delta = fm(ff(-decay, u, v), beta), out = ff(kq, delta, fm(decay, w));
    if (chain == 0) {
      d.out[(size_t)r * VH * 128 + h * 128 + col] = out;
      if (t >= sure) d.deltas[((size_t)seq * G + t - sure) * VH * 128 + h * 128 + col] = delta;
    }
    if (left > 0 || t + 1 < d.rows) change(delta, decay);
  }
}
// gated norm and its quantized form; and what the next call needs of inputs, keys and decays.
// A warp has a value head of a row.
extern "C" __global__ void __launch_bounds__(128) deltaGate(Delta d, Acts a, float eps, float* y) {
  pdlGo(); pdlWait();
  int VH = d.valueHeads, KH = d.keyHeads, h = blockIdx.x * 4 + threadIdx.x / 32, t = blockIdx.y, seq = blockIdx.z, lane = threadIdx.x & 31, r = seq * d.rows + t;
  int channels = 2 * KH * 128 + VH * 128, sure = d.rows - d.guesses;
  if ((int)blockIdx.x >= VH / 4) {  // tail rows: row i becomes the input of token sure-3+i; a thread has a channel
    int c = ((int)blockIdx.x - VH / 4) * 128 + threadIdx.x;
    if (t > 0 || c >= channels) return;
    float* tail = d.tail + (size_t)seq * 11 * channels + c;
    float x[11];
#pragma unroll
    for (int i = 0; i < 11; i++) if (i < 3 + d.guesses) {
      int tt = sure - 3 + i;
      x[i] = tt >= 0 ? d.qkv[(size_t)(seq * d.rows + tt) * d.ldq + c] : tail[(size_t)(d.kept + 3 + tt) * channels];
    }
#pragma unroll
    for (int i = 0; i < 11; i++) if (i < 3 + d.guesses) tail[(size_t)i * channels] = x[i];
    return;
  }
  if (t >= sure) {
    for (int c = blockIdx.x * 128 + threadIdx.x; c < KH * 128; c += VH / 4 * 128) d.keys[((size_t)seq * 8 + t - sure) * KH * 128 + c] = d.k[(size_t)r * KH * 128 + c];
    if (blockIdx.x == 0) for (int c = threadIdx.x; c < VH; c += 128) d.decays[((size_t)seq * 8 + t - sure) * VH + c] = d.decay[(size_t)r * VH + c];
  }
  const float* p = d.out + (size_t)r * VH * 128 + h * 128;
  int l = lane & 15;
  float s = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) { float v = p[i * 16 + l]; s = ff(v, v, s); }
  s = sum16(s);
  float scale = rsqrtx(fa(__fdiv_rn(s, 128.f), eps));
#pragma unroll
  for (int g = 0; g < 2; g++) {
    int c = g * 64 + 2 * lane;
    float2 v = *(const float2*)(p + c), z = *(const float2*)(d.z + (size_t)r * d.ldz + h * 128 + c);
    float v0 = fm(fm(fm(v.x, scale), d.norm[c]), silux(z.x)), v1 = fm(fm(fm(v.y, scale), d.norm[c + 1]), silux(z.y));
    if (y) { y[(size_t)r * VH * 128 + h * 128 + c] = v0; y[(size_t)r * VH * 128 + h * 128 + c + 1] = v1; }
    quantize64(a, r, h * 2 + g, v0, v1);
  }
}

// ---- attention ----
// A page is [layer][2][KVHeads][64][256] halves. Keys of a position lie lane-major, element
// l*16+j is dimension j*16+l, so that a thread has the 16 numbers of one lane of the dot
// product in one piece; values lie as they are.
struct Att {
  const __half* const* pages;   // table of the sequence
  int layer, kvHeads, share, rows, pos;   // rows of each sequence, position of the first
  int perSeq;                   // pages of a sequence in the table
  const float* q; int ldq;      // [rows, heads*512]: query and gate of each head
  const float *k, *v; int ldk;
  const float *qnorm, *knorm, *freqs; float eps;
  float *queries;               // [kv][rows][share][256]
  float *data; float2* sums;    // [page][kv][rows*share][256], (top, weight)
};
__device__ __forceinline__ size_t slotOf(const Att& a, int kind, int kv) { return ((size_t)(a.layer * 2 + kind) * a.kvHeads + kv) * 64 * 256; }
// norms, rotation (given as cosines and sines), append. A warp has a head of a row.
extern "C" __global__ void __launch_bounds__(128) attPrep(Att a, const float* rot) {
  pdlGo(); pdlWait();
  int heads = a.kvHeads * a.share, n = heads + 2 * a.kvHeads, i = blockIdx.x * 4 + threadIdx.x / 32, t = blockIdx.y, seq = blockIdx.z, r = seq * a.rows + t, lane = threadIdx.x & 31, pos = a.pos + t;
  __shared__ float buf[4][256];
  if (i >= n) return;
  float* y = buf[threadIdx.x / 32];
  __half* page = (__half*)a.pages[seq * a.perSeq + pos / 64];
  if (i >= heads + a.kvHeads) {
    int kv = i - heads - a.kvHeads;
    for (int c = lane; c < 256; c += 32) page[slotOf(a, 1, kv) + (pos % 64) * 256 + c] = __float2half_rn(a.v[(size_t)r * a.ldk + kv * 256 + c]);
    return;
  }
  const float* x = i < heads ? a.q + (size_t)r * a.ldq + i * 512 : a.k + (size_t)r * a.ldk + (i - heads) * 256;
  const float* gain = i < heads ? a.qnorm : a.knorm;
  int l = lane & 15;
  float s = 0;
#pragma unroll
  for (int j = 0; j < 16; j++) { float v = x[j * 16 + l]; s = ff(v, v, s); }
  s = sum16(s);
  float scale = rsqrtx(fa(__fdiv_rn(s, 256.f), a.eps));
  for (int c = lane; c < 256; c += 32) y[c] = fm(fm(x[c], scale), gain[c]);
  __syncwarp();
  {  // 32 pairs (i, i+32)
    float c = rot[r * 64 + lane], sn = rot[r * 64 + 32 + lane], p = y[lane], q = y[lane + 32];
    y[lane] = ff(p, c, -fm(q, sn)); y[lane + 32] = ff(q, c, fm(p, sn));
  }
  __syncwarp();
  if (i < heads) {
    int kv = i / a.share;
    for (int c = lane; c < 256; c += 32) a.queries[((((size_t)seq * a.kvHeads + kv) * a.rows + t) * a.share + i % a.share) * 256 + c] = y[c];
  } else
    for (int c = lane; c < 256; c += 32) page[slotOf(a, 0, i - heads) + (pos % 64) * 256 + c] = __float2half_rn(y[(c & 15) * 16 + c / 16]);
}
// one page and head of keys and values, Q queries of it at a time
template <int Q>
__device__ __forceinline__ void attPage(Att a, float scale) {
  __shared__ __align__(16) float sc[64][Q];
  __shared__ float top[Q];
  pdlGo(); pdlWait();
  int all = blockIdx.x, seq = all / a.perSeq, pg = all % a.perSeq, kv = blockIdx.y, q0 = blockIdx.z * Q, tid = threadIdx.x, lane = tid & 31, warp = tid / 32, l = lane & 15, half = lane / 16;
  const __half* page = a.pages[all];
  int nq = a.rows * a.share;
  const float* qp = a.queries + ((size_t)seq * a.kvHeads + kv) * nq * 256;
  float qr[Q][16];
#pragma unroll
  for (int q = 0; q < Q; q++)
#pragma unroll
    for (int j = 0; j < 16; j++) qr[q][j] = q0 + q < nq ? qp[(size_t)(q0 + q) * 256 + j * 16 + l] : 0.f;
  const uint4* kp = (const uint4*)(page + slotOf(a, 0, kv));
  constexpr int KB = 16 / Q;  // keys at a time of a half warp: 16 dot products, one for each lane in the end
#pragma unroll 1
  for (int it = 0; it < 8 / KB; it++) {
    int key0 = warp * 16 + half * 8 + it * KB;
    float acc[16];
    uint4 w[KB][2];
#pragma unroll
    for (int i = 0; i < KB; i++) { w[i][0] = kp[(key0 + i) * 32 + l * 2]; w[i][1] = kp[(key0 + i) * 32 + l * 2 + 1]; }
#pragma unroll
    for (int i = 0; i < KB; i++) {
      const uint32_t u[8] = {w[i][0].x, w[i][0].y, w[i][0].z, w[i][0].w, w[i][1].x, w[i][1].y, w[i][1].z, w[i][1].w};
#pragma unroll
      for (int q = 0; q < Q; q++) acc[i * Q + q] = 0;
#pragma unroll
      for (int j = 0; j < 8; j++) {
        float2 f = __half22float2(*(const __half2*)&u[j]);
#pragma unroll
        for (int q = 0; q < Q; q++) { acc[i * Q + q] = ff(qr[q][2 * j], f.x, acc[i * Q + q]); acc[i * Q + q] = ff(qr[q][2 * j + 1], f.y, acc[i * Q + q]); }
      }
    }
#pragma unroll
    for (int w2 = 8; w2 > 0; w2 >>= 1) {  // halves onto halves; of two values a lane keeps the one it will finish
      bool upper = l & w2;
#pragma unroll
      for (int i = 0; i < w2; i++) {
        float keep = upper ? acc[i + w2] : acc[i], give = upper ? acc[i] : acc[i + w2];
        acc[i] = fa(keep, __shfl_xor_sync(0xffffffffu, give, w2));
      }
    }
    sc[key0 + l / Q][l % Q] = fm(acc[0], scale);
  }
  __syncthreads();
  // softmax of the page: a warp has queries warp, warp+4, ...; a lane positions lane and lane+32
  int base = pg * 64;
  for (int q = warp; q < Q; q += 4) {
    int r = (q0 + q) / a.share, count = min(64, a.pos + r + 1 - base);
    float x0 = lane < count ? sc[lane][q] : __int_as_float(0xff800000), x1 = lane + 32 < count ? sc[lane + 32][q] : __int_as_float(0xff800000);
    float t = fmaxf(x0, x1);
    for (int w = 16; w > 0; w >>= 1) t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, w));
    float e0 = lane < count ? expx(fs(x0, t)) : 0.f, e1 = lane + 32 < count ? expx(fs(x1, t)) : 0.f;
    sc[lane][q] = e0; sc[lane + 32][q] = e1;
    // lane l of the sum has positions l, l+16, l+32, l+48 in this order
    float p1 = __shfl_xor_sync(0xffffffffu, e0, 16), p3 = __shfl_xor_sync(0xffffffffu, e1, 16);
    float s = 0;
    if (lane < 16) { s = e0; if (16 + lane < count) s = fa(s, p1); if (32 + lane < count) s = fa(s, e1); if (48 + lane < count) s = fa(s, p3); }
    s = sum16(s);
    if (lane == 0) { top[q] = t; if (q0 + q < nq && count > 0) a.sums[((size_t)all * a.kvHeads + kv) * nq + q0 + q] = make_float2(t, s); }
  }
  __syncthreads();
  const __half2* vp = (const __half2*)(page + slotOf(a, 1, kv)) + tid;
  float o[Q][2];
#pragma unroll
  for (int q = 0; q < Q; q++) o[q][0] = o[q][1] = 0;
#pragma unroll 16
  for (int j = 0; j < 64; j++) {
    float2 f = __half22float2(vp[j * 128]);
#pragma unroll
    for (int q = 0; q < Q; q += 4) {
      float4 p = *(const float4*)&sc[j][q];
      o[q][0] = ff(p.x, f.x, o[q][0]); o[q][1] = ff(p.x, f.y, o[q][1]); o[q + 1][0] = ff(p.y, f.x, o[q + 1][0]); o[q + 1][1] = ff(p.y, f.y, o[q + 1][1]);
      o[q + 2][0] = ff(p.z, f.x, o[q + 2][0]); o[q + 2][1] = ff(p.z, f.y, o[q + 2][1]); o[q + 3][0] = ff(p.w, f.x, o[q + 3][0]); o[q + 3][1] = ff(p.w, f.y, o[q + 3][1]);
    }
  }
#pragma unroll
  for (int q = 0; q < Q; q++) if (q0 + q < nq)
    *(float2*)(a.data + (((size_t)all * a.kvHeads + kv) * nq + q0 + q) * 256 + 2 * tid) = make_float2(o[q][0], o[q][1]);
}
// pages in order, division, gate, quantising: a block of 64 threads has a group of 64 dimensions of a query
extern "C" __global__ void __launch_bounds__(64) attJoin(Att a, Acts out, float* y) {
  __shared__ float old[2048], more[2048];
  pdlGo(); pdlWait();
  int nq = a.rows * a.share, seq = blockIdx.x / nq, id = blockIdx.x % nq, kv = blockIdx.y, g = blockIdx.z, tid = threadIdx.x, t0 = id / a.share, r = seq * a.rows + t0, pages = (a.pos + t0) / 64 + 1;
  const float2* sums = a.sums + (size_t)seq * a.perSeq * a.kvHeads * nq;
  // running maxima by one warp: 32 pages at a time
  float run = __int_as_float(0xff800000);
  if (tid < 32)
    for (int p0 = 0; p0 < pages; p0 += 32) {
      float t = p0 + tid < pages ? sums[((size_t)(p0 + tid) * a.kvHeads + kv) * nq + id].x : __int_as_float(0xff800000), m = t;
      for (int w = 1; w < 32; w <<= 1) { float x = __shfl_sync(0xffffffffu, m, max(0, tid - w)); if (tid >= w) m = fmaxf(m, x); }
      m = fmaxf(m, run);
      float before = __shfl_sync(0xffffffffu, m, max(0, tid - 1));
      if (tid == 0) before = run;
      if (p0 + tid < pages) { old[p0 + tid] = expx(fs(before, m)); more[p0 + tid] = expx(fs(t, m)); }
      run = __shfl_sync(0xffffffffu, m, 31);
    }
  __syncthreads();
  const float* dp = a.data + (((size_t)seq * a.perSeq * a.kvHeads + kv) * nq + id) * 256 + g * 64 + tid;
  size_t step = (size_t)a.kvHeads * nq * 256;
  float o = 0, wt = 0;
  o = dp[0]; wt = sums[(size_t)kv * nq + id].y;
#pragma unroll 8
  for (int p = 1; p < pages; p++) {
    float w = sums[((size_t)p * a.kvHeads + kv) * nq + id].y;
    o = ff(dp[p * step], more[p], fm(o, old[p]));
    wt = ff(w, more[p], fm(wt, old[p]));
  }
  int h = kv * a.share + id % a.share;
  float v = fm(__fdiv_rn(o, wt), sigmoidx(a.q[(size_t)r * a.ldq + h * 512 + 256 + g * 64 + tid]));
  __shared__ float x[64];
  x[tid] = v;
  if (y) y[(size_t)r * a.kvHeads * a.share * 256 + h * 256 + g * 64 + tid] = v;
  __syncthreads();
  if (tid < 32) quantize64(out, r, h * 4 + g, x[2 * tid], x[2 * tid + 1]);
}

// cosines and sines of a row's position: float64, as on the CPU
extern "C" __global__ void rotations(const float* freqs, const int* pos, float* rot) {
  pdlGo(); pdlWait();
  int i = threadIdx.x, r = blockIdx.x;
  double v = (double)fm((float)pos[r], freqs[i]);
  double n = floor(__dadd_rn(__dmul_rn(v, 0.63661977236758134308), 0.5));
  double x = __dsub_rn(v, __dmul_rn(n, 1.57079632673412561417e+00));
  x = __dsub_rn(x, __dmul_rn(n, 6.07710050630396597660e-11));
  x = __dsub_rn(x, __dmul_rn(n, 2.02226624879595063154e-21));
  double z = __dmul_rn(x, x), s = 1, c = 1;
  for (double k = 14; k >= 2; k -= 2) {
    s = __dsub_rn(1, __ddiv_rn(__dmul_rn(z, s), k * (k + 1)));
    c = __dsub_rn(1, __ddiv_rn(__dmul_rn(z, c), k * (k - 1)));
  }
  s = __dmul_rn(x, s);
  double si, co;
  switch ((long long)n & 3) {
    case 0: si = s; co = c; break;
    case 1: si = c; co = -s; break;
    case 2: si = -s; co = -c; break;
    default: si = -c; co = s;
  }
  rot[r * 64 + i] = (float)co; rot[r * 64 + 32 + i] = (float)si;
}

// ---- sampling ----
__device__ __forceinline__ uint32_t ordered(float z) { uint32_t b = __float_as_uint(z == 0 ? 0.f : z); return b ^ ((uint32_t)((int)b >> 31) | 0x80000000u); }
// the maxima of blocks of 64 logits: a warp has a block
extern "C" __global__ void __launch_bounds__(256) maxima(const float* z, uint32_t* out, int n) {
  pdlGo(); pdlWait();
  int b = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x & 31, nb = n / 64;
  if (b >= nb) return;
  float2 v = *(const float2*)(z + (size_t)blockIdx.y * n + b * 64 + 2 * lane);
  uint32_t m = __reduce_max_sync(0xffffffffu, max(ordered(v.x), ordered(v.y)));
  if (lane == 0) out[(size_t)blockIdx.y * nb + b] = m;
}
// the k-th highest maximum bounds the k-th highest logit from below; all logits of at least
// that are listed (id and logit), in any order; the host sorts. A block has a row.
extern "C" __global__ void __launch_bounds__(1024) candidates(const float* z, const uint32_t* mx, uint2* list, int* count, int n, int k, int room) {
  __shared__ int c, bins[256];
  __shared__ uint32_t cut;
  pdlGo(); pdlWait();
  int nb = n / 64, tid = threadIdx.x;
  const uint32_t* m = mx + (size_t)blockIdx.x * nb;
  uint32_t v[4];
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] = tid + i * 1024 < nb ? m[tid + i * 1024] : 0;
  uint32_t prefix = 0; int want = k;
  for (int shift = 24; shift >= 0; shift -= 8) {  // radix selection of the k-th
    if (tid < 256) bins[tid] = 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++) if (tid + i * 1024 < nb && (shift == 24 || v[i] >> (shift + 8) == prefix >> (shift + 8))) atomicAdd(&bins[v[i] >> shift & 255], 1);
    __syncthreads();
    if (tid < 32) {  // a lane has 8 bins, lane 0 the highest
      int own[8], sum = 0;
#pragma unroll
      for (int i = 0; i < 8; i++) { own[i] = bins[255 - tid * 8 - i]; sum += own[i]; }
      int upto = sum;
      for (int w = 1; w < 32; w <<= 1) { int x = __shfl_sync(0xffffffffu, upto, max(0, tid - w)); if (tid >= w) upto += x; }
      int s = upto - sum;
      if (s < want && upto >= want) {
        int i = 0;
        while (s + own[i] < want) s += own[i++];
        cut = prefix | (uint32_t)(255 - tid * 8 - i) << shift; c = want - s;
      }
    }
    __syncthreads();
    prefix = cut; want = c;
    __syncthreads();
  }
  __shared__ int found[4096], nf;
  if (tid == 0) c = nf = 0;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; i++) if (tid + i * 1024 < nb && v[i] >= prefix) found[atomicAdd(&nf, 1)] = tid + i * 1024;
  __syncthreads();
  const float* row = z + (size_t)blockIdx.x * n;
  for (int i = tid / 32; i < nf; i += 32) {
    int id = found[i] * 64 + 2 * (tid & 31);
    float2 x = *(const float2*)(row + id);
    if (ordered(x.x) >= prefix) { int at = atomicAdd(&c, 1); if (at < room) list[(size_t)blockIdx.x * room + at] = {(uint32_t)id, __float_as_uint(x.x)}; }
    if (ordered(x.y) >= prefix) { int at = atomicAdd(&c, 1); if (at < room) list[(size_t)blockIdx.x * room + at] = {(uint32_t)id + 1, __float_as_uint(x.y)}; }
  }
  __syncthreads();
  if (tid == 0) count[blockIdx.x] = c;
}
extern "C" __global__ void quantizeRows(const float* x, Acts a, int cols) {
  int g = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x & 31;
  if (g < cols / 64) quantize64(a, blockIdx.y, g, x[(size_t)blockIdx.y * cols + g * 64 + 2 * lane], x[(size_t)blockIdx.y * cols + g * 64 + 2 * lane + 1]);
}

extern "C" __global__ void __launch_bounds__(512) norm(const float* x, const float* gain, float* y, Acts a, int cols, float eps) { normQ<false>(x, gain, y, a, cols, eps); }
extern "C" __global__ void __launch_bounds__(128) attPage4(Att a, float scale) { attPage<4>(a, scale); }
extern "C" __global__ void __launch_bounds__(256) tile4(MM p) { mmP<4, 3>(p); }
extern "C" __global__ void __launch_bounds__(256) relay4(MM p) { mmF<4, 1, 2, 4, 3, true>(p); }
extern "C" __global__ void __launch_bounds__(256) relay8(MM p) { mmF<8, 1, 2, 4, 3, true>(p); }
extern "C" __global__ void __launch_bounds__(256) persistent4(MM p) { mmG<4, 1, 2, 4, 3, 2>(p); }
