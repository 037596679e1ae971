#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
// Kernel gelu: GELU, exact or by tanh. dst may be x.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Floats dst, x; int dstStride, xStride, cols, byTanh; } g;
void main() {
  int i = int(gl_GlobalInvocationID.x), r = int(gl_WorkGroupID.y);
  if (i >= g.cols) return;
  float v = g.x.v[r * g.xStride + i];
  g.dst.v[r * g.dstStride + i] = g.byTanh != 0 ? geluTanh32(v) : gelu32(v);
}
