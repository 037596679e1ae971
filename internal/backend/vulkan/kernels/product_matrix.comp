#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#include "bits.glsl"
#include "memory.glsl"
#include "weight.glsl"
#include "tile.glsl"
// Kernel product_matrix: product_tile by cooperative matrices of signed bytes, 16 x DEPTH and DEPTH x 16. DEEP is even. A subgroup
// of 32 has 8*DEEP rows and 32 outputs. The sums of a group go through shared memory: which thread has which is not known.
layout(constant_id = 2) const int DEPTH = 32;
const int HIGH = DEEP / 2; // matrices of a subgroup, one below another
shared int sums[8][2][256];
void main() {
  Weight w = g.w;
  coopmat<int, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> matrices[HIGH][2];
  float acc[HIGH][2][8];
  int total[HIGH][8];
  [[unroll]] for (int i = 0; i < HIGH; i++)
    [[unroll]] for (int j = 0; j < 2; j++) {
      matrices[i][j] = coopmat<int, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0);
      [[unroll]] for (int n = 0; n < 8; n++) acc[i][j][n] = 0.0, total[i][n] = 0;
    }
  int part_ = int(gl_SubgroupID), lane = int(gl_SubgroupInvocationID), x = part_ & 3, y = part_ / 4; // the subgroup's 32 outputs, and its half of the rows
  int group = w.group, all = group * w.groups, wide = min(group, STAGE);
  bool byWeight = w.first != 0, biased = w.kind == BIASED && w.zero == 0.0, adds = hasAddend(w);
  if (self() == 0) faints = 0u;
  if (LEVEL != 2u) {
    place(w);
    fetch(w, 0);
    for (int first = 0; first < all; first += STAGE) {
      barrier();
      store(w, first);
      barrier();
      if (first + STAGE < all) fetch(w, first + STAGE);
      [[dont_unroll]] for (int k = 0; k < STAGE; k += DEPTH) {
        coopmat<int8_t, gl_ScopeSubgroup, DEPTH, 16, gl_MatrixUseB> b[2];
        [[unroll]] for (int j = 0; j < 2; j++) coopMatLoad(b[j], outputCodes, uint((32 * x + 16 * j) * STRIDE + k / 16), uint(STRIDE), gl_CooperativeMatrixLayoutColumnMajor);
        [[unroll]] for (int i = 0; i < HIGH; i++) {
          coopmat<int8_t, gl_ScopeSubgroup, 16, DEPTH, gl_MatrixUseA> a;
          coopMatLoad(a, rowCodes, uint((8 * DEEP * y + 16 * i) * STRIDE + k / 16), uint(STRIDE), gl_CooperativeMatrixLayoutRowMajor);
          [[unroll]] for (int j = 0; j < 2; j++) matrices[i][j] = coopMatMulAdd(a, b[j], matrices[i][j]);
        }
        if (adds)
          [[unroll]] for (int i = 0; i < HIGH; i++)
            [[unroll]] for (int n = 0; n < 8; n++) {
              int r = 8 * DEEP * y + 16 * i + lane / 16 + 2 * n;
              for (int q = 0; q < DEPTH / 16; q++) total[i][n] += partial[r][k / 16 + q];
            }
        if ((first + k + DEPTH) % group != 0 || first + k >= all) continue;
        int slot = k / wide;
        [[unroll]] for (int i = 0; i < HIGH; i++) {
          subgroupBarrier(); // the sums before were read
          [[unroll]] for (int j = 0; j < 2; j++) {
            coopMatStore(matrices[i][j], sums[part_][j], 0u, 16u, gl_CooperativeMatrixLayoutRowMajor);
            matrices[i][j] = coopmat<int, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0);
          }
          subgroupMemoryBarrierShared();
          subgroupBarrier();
          [[unroll]] for (int n = 0; n < 8; n++) {
            int r = lane / 16 + 2 * n;
            vec2 tail = rowTails[slot][8 * DEEP * y + 16 * i + r];
            float s = byWeight ? tail.x : tail.y;
            [[unroll]] for (int j = 0; j < 2; j++) {
              vec2 scale = outputScales[slot][32 * x + 16 * j + (lane & 15)];
              int sum = sums[part_][j][16 * r + (lane & 15)];
              if (adds) sum += addend(w, scale) * total[i][n];
              acc[i][j][n] = fusedPlain(mulPlain(float(sum), byWeight ? scale.x : tail.x), byWeight ? s : scale.x, acc[i][j][n]);
              if (biased) acc[i][j][n] = fusedPlain(scale.y, s, acc[i][j][n]);
            }
            total[i][n] = 0;
          }
        }
      }
    }
    barrier();
  }
  [[unroll]] for (int i = 0; i < HIGH; i++)
    [[unroll]] for (int n = 0; n < 8; n++)
      [[unroll]] for (int j = 0; j < 2; j++) putTile(w, 8 * DEEP * y + 16 * i + lane / 16 + 2 * n, 32 * x + 16 * j + (lane & 15), acc[i][j][n]);
}
