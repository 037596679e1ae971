#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "lanes.glsl"
// Kernel layer_norm: a workgroup has a row. dst may be x.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Floats dst, x, gain, bias; int dstStride, xStride, cols; float eps; } g;
void main() {
  int i = int(gl_LocalInvocationID.x), from = int(gl_WorkGroupID.x) * g.xStride, to = int(gl_WorkGroupID.x) * g.dstStride;
  float s = 0.0;
  for (int c = i; c < g.cols; c += 64) s = add(s, g.x.v[from + c]);
  float mean = quot(wideSum(s), float(g.cols));
  s = 0.0;
  for (int c = i; c < g.cols; c += 64) {
    float v = sub(g.x.v[from + c], mean);
    s = fused(v, v, s);
  }
  float scale = rsqrt32(add(quot(wideSum(s), float(g.cols)), g.eps));
  for (int c = i; c < g.cols; c += 64) g.dst.v[to + c] = fused(mul(sub(g.x.v[from + c], mean), scale), g.gain.v[c], g.bias.v[c]);
}
