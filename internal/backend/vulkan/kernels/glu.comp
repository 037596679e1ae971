#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
// Kernel glu: silu(gate)*up or, with GELU by tanh in place of SiLU, the same. dst may be one of them.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Floats dst, gate, up; int dstStride, gateStride, upStride, cols, byTanh; } g;
void main() {
  int i = int(gl_GlobalInvocationID.x), r = int(gl_WorkGroupID.y);
  if (i >= g.cols) return;
  float x = g.gate.v[r * g.gateStride + i];
  g.dst.v[r * g.dstStride + i] = mul(g.byTanh != 0 ? geluTanh32(x) : silu32(x), g.up.v[r * g.upStride + i]);
}
