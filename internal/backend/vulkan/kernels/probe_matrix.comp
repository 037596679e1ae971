#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#include "bits.glsl"
#include "memory.glsl"
// Kernel probe_matrix: a product of two cooperative matrices, of 16 rows and 16 outputs, as product_matrix computes them, and
// the places that the sums of each thread have in it, 16 times the row and the output. Codes are signed bytes, [16][DEPTH] of rows and
// then of outputs.
layout(constant_id = 1) const int DEPTH = 32;
layout(local_size_x = 32) in;
layout(push_constant, scalar) uniform Args { Quads codes; Ints dst; } g;
const int STRIDE = 5;
shared uvec4 rowCodes[16 * STRIDE], outputCodes[16 * STRIDE];
shared int sums[256];
void main() {
  int t = int(gl_LocalInvocationID.x), quads = DEPTH / 16;
  for (int i = t; i < 16 * quads; i += 32) {
    rowCodes[i / quads * STRIDE + i % quads] = g.codes.v[i];
    outputCodes[i / quads * STRIDE + i % quads] = g.codes.v[16 * quads + i];
  }
  barrier();
  coopmat<int, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> c = coopmat<int, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0);
  coopmat<int8_t, gl_ScopeSubgroup, 16, DEPTH, gl_MatrixUseA> a;
  coopmat<int8_t, gl_ScopeSubgroup, DEPTH, 16, gl_MatrixUseB> b;
  coopMatLoad(a, rowCodes, 0u, uint(STRIDE), gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(b, outputCodes, 0u, uint(STRIDE), gl_CooperativeMatrixLayoutColumnMajor);
  c = coopMatMulAdd(a, b, c);
  coopMatStore(c, sums, 0u, 16u, gl_CooperativeMatrixLayoutRowMajor);
  barrier();
  for (int i = t; i < 256; i += 32) g.dst.v[i] = sums[i];
  barrier();
  for (int i = t; i < 256; i += 32) sums[i] = i;
  barrier();
  coopMatLoad(c, sums, 0u, 16u, gl_CooperativeMatrixLayoutRowMajor);
  for (int n = 0; n < 8; n++) g.dst.v[256 + 8 * t + n] = n < c.length() ? c[n] : -1;
}
