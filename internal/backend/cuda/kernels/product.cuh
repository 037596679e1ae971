// Common parts of products of all kinds: their operands, and the destination of results.
#pragma once
#include "call.cuh"
#include "weight.cuh"

// Job is one matrix of a stack and the rows that it is multiplied with, for experts: from a
// multiple of eight on, and no more than the kernel takes at once.
struct Job {  // shared with Go
  int matrix, first, rows, pad;
};

// Product is x times the rows of w. Input rows are floats or quantized: codes [rows, cols], rows
// codeStride apart, and tails [groups, tailRows], the scale and the scaled sum of a row's group.
// Both have memory for whole chunks of eight groups and 32 rows from any multiple of eight on.
struct Product {  // shared with Go
  Weight w;
  const signed char* codes;
  const float2* tails;
  const float* x;
  float* dst;
  const float* bias;   // [rows of w], or none
  const Call* only;    // lists the tiles; none: all
  const Job* jobs;     // none: matrix 0 and all rows
  const int* jobCount;
  int tailRows, codeStride, xStride, dstStride, rows, add;
};

// Piece is some rows and a tile of a product.
struct Piece {
  int tile, matrix, first, rows;
};

// pieces is the number of pieces: tiles of all jobs, or listed ones.
__device__ __forceinline__ int pieces(const Product& p) {
  if (p.jobs) return p.w.tiles * *p.jobCount;
  return p.only ? p.only->onlys : p.w.tiles;
}

__device__ __forceinline__ Piece piece(const Product& p, int i) {
  if (p.jobs) {
    const Job j = p.jobs[i / p.w.tiles];
    return {i % p.w.tiles, j.matrix, j.first, j.rows};
  }
  return {p.only ? p.only->only[i] : i, 0, 0, p.rows};
}

__device__ __forceinline__ const byte* tileAt(const Weight& w, int matrix, int tile) {
  return w.data + matrix * w.matrix + (long long)tile * w.tileBytes;
}

// put writes a result, with the bias and the old value.
__device__ __forceinline__ void put(const Product& p, int row, int out, float v) {
  if (out >= p.w.rows) return;
  float* y = p.dst + (long long)row * p.dstStride + out;
  if (p.add) v = __fadd_rn(*y, v);
  if (p.bias) v = __fadd_rn(v, p.bias[out]);
  *y = v;
}
