#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifndef EMULATED
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#endif
#include "bits.glsl"
#include "memory.glsl"
#include "weight.glsl"
#include "experts.glsl"
// Kernel product_matrix: product_tile by cooperative matrices of signed bytes, 16 x DEPTH and DEPTH x 16, in subgroups of 32.
layout(constant_id = 8) const int HIGH = 4;   // matrices of a subgroup, one below another
layout(constant_id = 9) const int ACROSS = 2; // and one beside another
layout(constant_id = 10) const int DOWN = 2;   // subgroups, likewise
layout(constant_id = 11) const int BESIDE = 4;
layout(constant_id = 12) const int DEPTH = 32;
// How much further the sums of a thread lie in a matrix for each bit of their number, 16 times the rows and the outputs: probe_matrix.
layout(constant_id = 13) const int PLACE1 = 1;
layout(constant_id = 14) const int PLACE2 = 128;
layout(constant_id = 15) const int PLACE4 = 8;
const int ROWS = 16 * HIGH * DOWN, OUTPUTS = 16 * ACROSS * BESIDE;
#include "tile.glsl"
const int STEPS = STAGE / DEPTH, GROUP_STEPS = GROUP / DEPTH;
const int MIDDLE = 0x4b400000; // the bits of 12582912: sums of groups are below 2^22, and from there on have the bits of a float
shared int places[256];
#ifdef EMULATED
struct Sums { int v[8]; };
#define RowMatrix int
#define OutputMatrix int
#define LOAD_ROWS(m, at) m = at
#define LOAD_OUTPUTS(m, at) m = at
#define SUM(m, n) m.v[n]
#define PART (self() / 32)
int placeOf(int n) { return self() % 32 / 4 * 16 + self() % 4 * 2 + (n & 1) * PLACE1 + (n >> 1 & 1) * PLACE2 + (n >> 2) * PLACE4; }
Sums filled(int x) { Sums m; for (int i = 0; i < 8; i++) m.v[i] = x; return m; }
Sums multiplied(int a, int b, Sums c) {
  [[unroll]] for (int n = 0; n < 8; n++)
    for (int q = 0; q < DEPTH / 16; q++) {
      uvec4 x = rowCodes[a + placeOf(n) / 16 * STRIDE + q], y = outputCodes[b + placeOf(n) % 16 * STRIDE + q];
      c.v[n] += DOT(x.x, y.x) + DOT(x.y, y.y) + DOT(x.z, y.z) + DOT(x.w, y.w);
    }
  return c;
}
#define MULTIPLIED(a, b, c) multiplied(a, b, c)
#define FILLED(x) filled(x)
#define LOAD_PLACES(m) m = filled(placeOf(0))
#else
#define Sums coopmat<int, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define RowMatrix coopmat<int8_t, gl_ScopeSubgroup, 16, DEPTH, gl_MatrixUseA>
#define OutputMatrix coopmat<int8_t, gl_ScopeSubgroup, DEPTH, 16, gl_MatrixUseB>
#define LOAD_ROWS(m, at) coopMatLoad(m, rowCodes, uint(at), uint(STRIDE), gl_CooperativeMatrixLayoutRowMajor)
#define LOAD_OUTPUTS(m, at) coopMatLoad(m, outputCodes, uint(at), uint(STRIDE), gl_CooperativeMatrixLayoutColumnMajor)
#define LOAD_PLACES(m) coopMatLoad(m, places, 0u, 16u, gl_CooperativeMatrixLayoutRowMajor)
#define SUM(m, n) m[n]
#define PART int(gl_SubgroupID)
#define MULTIPLIED(a, b, c) coopMatMulAdd(a, b, c)
#define FILLED(x) Sums(x)
#endif

// further, down and right are how much further sum n of a thread lies than its first.
int further(int n) { return (n & 1) * PLACE1 + (n >> 1 & 1) * PLACE2 + (n >> 2) * PLACE4; }
int down(int n) { return further(n) >> 4; }
int right(int n) { return further(n) & 15; }

void main() {
  float acc[HIGH][ACROSS][8];
  [[unroll]] for (int i = 0; i < HIGH; i++)
    [[unroll]] for (int j = 0; j < ACROSS; j++)
      [[unroll]] for (int n = 0; n < 8; n++) acc[i][j][n] = 0.0;
  int x = PART % BESIDE, y = PART / BESIDE, all = GROUP * g.groups, buffer_ = 0;
  for (int i = self(); i < 256; i += THREADS) places[i] = i;
  if (self() == 0) faints = 0u;
  barrier();
  Sums begin;
  LOAD_PLACES(begin);
  int row0 = 16 * HIGH * y + (SUM(begin, 0) >> 4), output0 = 16 * ACROSS * x + (SUM(begin, 0) & 15);
  if (LEVEL != 2u) {
    place();
    fetch(0);
    store(0);
    barrier();
    for (int first = 0; first < all; first += STAGE) {
      bool more = first + STAGE < all;
      if (more) fetch(first + STAGE);
      [[unroll]] for (int slot = 0; slot < SLOTS; slot++) {
        OutputMatrix b[ACROSS][GROUP_STEPS];
        [[unroll]] for (int j = 0; j < ACROSS; j++)
          [[unroll]] for (int k = 0; k < GROUP_STEPS; k++) LOAD_OUTPUTS(b[j][k], (buffer_ * OUTPUTS + 16 * (ACROSS * x + j)) * STRIDE + slot * WIDE + k * (DEPTH / 16));
        [[unroll]] for (int i = 0; i < HIGH; i++) {
          RowMatrix a[GROUP_STEPS];
          [[unroll]] for (int k = 0; k < GROUP_STEPS; k++) LOAD_ROWS(a[k], (buffer_ * ROWS + 16 * (HIGH * y + i)) * STRIDE + slot * WIDE + k * (DEPTH / 16));
          [[unroll]] for (int j = 0; j < ACROSS; j++) {
            Sums sums = FILLED(MIDDLE);
            [[unroll]] for (int k = 0; k < GROUP_STEPS; k++) sums = MULTIPLIED(a[k], b[j][k], sums);
            if (SLOTS == 1 || first + slot * GROUP < all)
              [[unroll]] for (int n = 0; n < 8; n++) {
                int r = row0 + 16 * i + down(n), o = output0 + 16 * j + right(n), sum = SUM(sums, n);
                vec2 tail = rowTails[(buffer_ * SLOTS + slot) * ROWS + r], scale = outputScales[(buffer_ * SLOTS + slot) * OUTPUTS + o];
                if (TOTALS) sum += addend(buffer_, slot, r, scale);
                precise float s = intBitsToFloat(sum) - 12582912.0;
                acc[i][j][n] = link(s, tail, scale, acc[i][j][n]);
              }
          }
        }
      }
      if (BUFFERS == 1) barrier();
      buffer_ = BUFFERS - 1 - buffer_;
      if (more) store(buffer_);
      barrier();
    }
  }
  if (again()) {
    [[dont_unroll]] for (int i = 0; i < 8 * HIGH * ACROSS; i++) putTile(row0 + 16 * (i / 8 % HIGH) + down(i % 8), output0 + 16 * (i / 8 / HIGH) + right(i % 8), 0.0, true);
    return;
  }
  [[unroll]] for (int i = 0; i < HIGH; i++)
    [[unroll]] for (int j = 0; j < ACROSS; j++)
      [[unroll]] for (int n = 0; n < 8; n++) putTile(row0 + 16 * i + down(n), output0 + 16 * j + right(n), acc[i][j][n], false);
}
