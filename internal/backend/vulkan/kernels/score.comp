#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
// Kernel score: adds products of three vectors to numbers, a thread for each.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Floats scores; Floats left; Floats mid; Floats right; int stride, leftStride, midStride, rightStride, cols, n; } g;
void main() {
  int c = int(gl_GlobalInvocationID.x), r = int(gl_WorkGroupID.y);
  if (c >= g.n) return;
  float sum = 0.0;
  for (int i = 0; i < g.cols; i++) sum = add(sum, mul(mul(g.left.v[r * g.leftStride + i], g.mid.v[r * g.midStride + i]), g.right.v[(r * g.n + c) * g.rightStride + i]));
  g.scores.v[r * g.stride + c] = add(g.scores.v[r * g.stride + c], sum);
}
