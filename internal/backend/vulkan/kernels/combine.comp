#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
// Kernel combine: adds the weighted answers of a row's experts in the order of their rank, and then that of the shared expert, whose
// weight is a sigmoid.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args {
  Floats dst, answers, weights, own, router; // own and router: of the shared expert, or none
  Ints slots;
  int dstStride, cols, topK;
} g;
void main() {
  int i = int(gl_GlobalInvocationID.x), r = int(gl_WorkGroupID.y);
  if (i >= g.cols) return;
  float sum = 0.0;
  for (int j = 0; j < g.topK; j++) sum = add(sum, mul(g.weights.v[r * g.topK + j], g.answers.v[g.slots.v[r * g.topK + j] * g.cols + i]));
  if (!none(g.own)) sum = add(sum, mul(none(g.router) ? 1.0 : sigmoid32(g.router.v[r]), g.own.v[r * g.cols + i]));
  g.dst.v[r * g.dstStride + i] = add(g.dst.v[r * g.dstStride + i], sum);
}
