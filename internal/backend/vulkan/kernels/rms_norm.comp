#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "bits.glsl"
#include "memory.glsl"
#include "squares.glsl"
// Kernel rms_norm: a workgroup has a row. dst may be x.
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args { Floats dst, x, gain; int dstStride, xStride, cols; float eps; } g;
void main() {
  int i = int(gl_LocalInvocationID.x), from = int(gl_WorkGroupID.x) * g.xStride, to = int(gl_WorkGroupID.x) * g.dstStride;
  float scale = rsqrt32(add(quot(sumOfSquares(g.x, from, g.cols), float(g.cols)), g.eps));
  for (int c = i; c < g.cols; c += 256) g.dst.v[to + c] = mul(mul(g.x.v[from + c], scale), g.gain.v[c]);
}
