// Tensor cores and asynchronous copies, for products of weights that lie for them (Weight.laid).
#pragma once
#include "product.cuh"

// The sums of mma begin at MAGIC: as bits of a float they are 12582912 plus the sum, exactly, as
// long as its magnitude is below 2^22. So it is for 128 codes of 8 bits.
#define MAGIC 0x4b400000

__device__ __forceinline__ float sumOf(int d) { return __fsub_rn(__int_as_float(d), 12582912.0f); }

// What scales the codes of a block: a scale and a bias for each output, of bf16 or float32 (WIDE); or
// codes are signed, scales are halves, and a block of 64 columns is two groups of 32. Or codes have zero points. A word
// then has the first 24 bits of a scale as float32, which are all that a bf16 or a half has, and the zero point (ZEROED).
// Scales of float32 have what is to be added to a code beside them (ZEROED_WIDE).
enum { BRIEF, WIDE, SYMMETRIC, ZEROED, ZEROED_WIDE };

template <int SCALES> constexpr bool zeroed = SCALES == ZEROED || SCALES == ZEROED_WIDE;

// weighed is the sum of a row's group times the row's scale: of codes less their zero point, where they have one. Total is
// the sum of the row's codes.
template <int SCALES> __device__ __forceinline__ float weighed(int d, float scale, float total, float zero) {
  return __fmul_rn(zeroed<SCALES> ? __fmaf_rn(zero, total, sumOf(d)) : sumOf(d), scale);
}

// linked is an accumulator and the next group of its chain.
template <int SCALES> __device__ __forceinline__ float linked(float acc, float x, float scale, float bias, float total) {
  acc = __fmaf_rn(x, scale, acc);
  return zeroed<SCALES> ? acc : __fmaf_rn(bias, total, acc);
}

// added is both: number j of what multiply leaves, with the tails of two rows and the scales that readScales leaves.
template <int SCALES> __device__ __forceinline__ float added(float acc, int d, const float4& t, const float (&s)[4], int j) {
  const float total = j & 1 ? t.w : t.y;
  return linked<SCALES>(acc, weighed<SCALES>(d, j & 1 ? t.z : t.x, total, s[j / 2 * 2 + 1]), s[j / 2 * 2], s[j / 2 * 2 + 1], total);
}

// Signed codes of 4 bits are multiplied as the high halves of bytes. Their sums, sixteen times what they
// should be, begin at the bits of a float whose last bit counts a sixteenth.
template <int BITS> constexpr int signedMagic = BITS == 4 ? 0x49400000 : MAGIC;

template <int BITS> __device__ __forceinline__ float signedSum(int d) { return __fsub_rn(__int_as_float(d), BITS == 4 ? 786432.0f : 12582912.0f); }

__device__ __forceinline__ void copy16(word to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void arrived() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Codes are the codes of 16 outputs and a group of columns as left operands of mma.
template <int GROUP> struct Codes {
  word a[GROUP / 32][4];
};

// unpack reads a lane's codes of a block.
template <int BITS, int GROUP> __device__ __forceinline__ void unpack(Codes<GROUP>& c, const byte* block, int lane) {
  const word m = 0x0f0f0f0f;
  if constexpr (BITS == 8) {
#pragma unroll
    for (int i = 0; i < GROUP / 32; i++) {
      const uint4 w = ((const uint4*)block)[32 * i + lane];
      c.a[i][0] = w.x, c.a[i][1] = w.y, c.a[i][2] = w.z, c.a[i][3] = w.w;
    }
  } else if constexpr (GROUP == 32) {
    const uint2 w = ((const uint2*)block)[lane];
    c.a[0][0] = w.x & m, c.a[0][1] = w.y & m, c.a[0][2] = w.x >> 4 & m, c.a[0][3] = w.y >> 4 & m;
  } else {
#pragma unroll
    for (int i = 0; i < GROUP / 64; i++) {
      const uint4 w = ((const uint4*)block)[32 * i + lane];
      c.a[2 * i][0] = w.x & m, c.a[2 * i][1] = w.y & m, c.a[2 * i][2] = w.x >> 4 & m, c.a[2 * i][3] = w.y >> 4 & m;
      c.a[2 * i + 1][0] = w.z & m, c.a[2 * i + 1][1] = w.w & m, c.a[2 * i + 1][2] = w.z >> 4 & m, c.a[2 * i + 1][3] = w.w >> 4 & m;
    }
  }
}

// Acts are the codes of eight rows and a group of columns as right operands: lane 4r+q has
// GROUP/4 columns of row r, from GROUP/4*q on.
template <int GROUP> struct Acts {
  word b[GROUP / 16];
};

template <int GROUP> __device__ __forceinline__ void loadActs(Acts<GROUP>& a, const signed char* p) {
  if constexpr (GROUP == 32) {
    const uint2 v = *(const uint2*)p;
    a.b[0] = v.x, a.b[1] = v.y;
  } else {
#pragma unroll
    for (int i = 0; i < GROUP / 64; i++) {
      const uint4 v = ((const uint4*)p)[i];
      a.b[4 * i] = v.x, a.b[4 * i + 1] = v.y, a.b[4 * i + 2] = v.z, a.b[4 * i + 3] = v.w;
    }
  }
}

// multiply leaves MAGIC plus the sums: d[0] and d[1] of output lane/4 and rows 2*(lane%4) and one
// more, d[2] and d[3] of the output eight further.
template <int GROUP> __device__ __forceinline__ void multiply(int (&d)[4], const Codes<GROUP>& c, const Acts<GROUP>& a) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%10,%10,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(c.a[0][0]), "r"(c.a[0][1]), "r"(c.a[0][2]), "r"(c.a[0][3]), "r"(a.b[0]), "r"(a.b[1]), "r"(MAGIC));
#pragma unroll
  for (int i = 1; i < GROUP / 32; i++)
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(c.a[i][0]), "r"(c.a[i][1]), "r"(c.a[i][2]), "r"(c.a[i][3]), "r"(a.b[2 * i]), "r"(a.b[2 * i + 1]));
}

template <int BITS, int GROUP, int SCALES> constexpr int blockBytes() {
  static_assert(SCALES != SYMMETRIC || GROUP == 64);
  return GROUP * 2 * BITS + (SCALES == WIDE || SCALES == ZEROED_WIDE ? 128 : 64);
}

// readScales reads the scale and the bias of output lane/4, and those of the output eight further; of symmetric
// codes the scales of both groups.
template <int SCALES> __device__ __forceinline__ void readScales(float (&s)[4], const byte* scales, int lane) {
  if constexpr (SCALES == WIDE || SCALES == ZEROED_WIDE) {
    const float4 v = ((const float4*)scales)[lane / 4];
    s[0] = v.x, s[1] = v.y, s[2] = v.z, s[3] = v.w;
  } else if constexpr (SCALES == SYMMETRIC) {
    const uint2 v = ((const uint2*)scales)[lane / 4];
    s[0] = half16(v.x), s[1] = half16(v.x >> 16);
    s[2] = half16(v.y), s[3] = half16(v.y >> 16);
  } else if constexpr (SCALES == ZEROED) {
    const uint2 v = ((const uint2*)scales)[lane / 4];
    s[0] = scaleIn(v.x), s[1] = zeroIn(v.x), s[2] = scaleIn(v.y), s[3] = zeroIn(v.y);
  } else {
    const uint2 v = ((const uint2*)scales)[lane / 4];
    s[0] = __uint_as_float(v.x << 16), s[1] = __uint_as_float(v.x & 0xffff0000u);
    s[2] = __uint_as_float(v.y << 16), s[3] = __uint_as_float(v.y & 0xffff0000u);
  }
}

// unpackSigned reads a lane's codes of a block of two groups of 32, those of 4 bits times sixteen.
template <int BITS> __device__ __forceinline__ void unpackSigned(Codes<64>& c, const byte* block, int lane) {
  if constexpr (BITS == 8) {
    unpack<8, 64>(c, block, lane);
  } else {
    const word m = 0xf0f0f0f0;
    const uint4 w = ((const uint4*)block)[lane];
    c.a[0][0] = w.x << 4 & m, c.a[0][1] = w.y << 4 & m, c.a[0][2] = w.x & m, c.a[0][3] = w.y & m;
    c.a[1][0] = w.z << 4 & m, c.a[1][1] = w.w << 4 & m, c.a[1][2] = w.z & m, c.a[1][3] = w.w & m;
  }
}

// multiplySigned leaves the sums of both groups, each as multiply does.
template <int BITS> __device__ __forceinline__ void multiplySigned(int (&d)[2][4], const Codes<64>& c, const Acts<64>& a) {
#pragma unroll
  for (int h = 0; h < 2; h++)
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%10,%10,%10};"
        : "=r"(d[h][0]), "=r"(d[h][1]), "=r"(d[h][2]), "=r"(d[h][3])
        : "r"(c.a[h][0]), "r"(c.a[h][1]), "r"(c.a[h][2]), "r"(c.a[h][3]), "r"(a.b[2 * h]), "r"(a.b[2 * h + 1]), "r"(signedMagic<BITS>));
}

// addPair adds the products of both groups, with the scales of outputs as readScales leaves them, and in t those of
// two rows: both of the one and then of the other.
template <int BITS> __device__ __forceinline__ void addPair(float (&acc)[4], const Codes<64>& c, const Acts<64>& a, const float4& t, const float (&s)[4]) {
  int d[2][4];
  multiplySigned<BITS>(d, c, a);
#pragma unroll
  for (int j = 0; j < 4; j++) {
    const float first = __fmul_rn(signedSum<BITS>(d[0][j]), j & 1 ? t.z : t.x), second = __fmul_rn(signedSum<BITS>(d[1][j]), j & 1 ? t.w : t.y);
    acc[j] = __fmaf_rn(second, s[j / 2 * 2 + 1], __fmaf_rn(first, s[j / 2 * 2], acc[j]));
  }
}

// Of two groups lane 4r+q has eight columns of each, from 8q on, in the first and last words of Acts.
__device__ __forceinline__ void loadPair(Acts<64>& a, const signed char* first, const signed char* second) {
  const uint2 v = *(const uint2*)first, w = *(const uint2*)second;
  a.b[0] = v.x, a.b[1] = v.y, a.b[2] = w.x, a.b[3] = w.y;
}

// copyPair copies 16 columns of a pair of groups: piece i of a row of 64, from lane to lane those of both groups side
// by side, so that loadActs reads a lane's columns at once.
__device__ __forceinline__ void copyPair(word row, int i, const signed char* from) {
  const word to = row + (i & 1) * 32 + (i >> 1) * 8;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to + 16), "l"(from + 8) : "memory");
}

// copyScale copies the scale of a row's group.
__device__ __forceinline__ void copyScale(word to, const float2* tail) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(tail) : "memory");
}
