#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "lanes.glsl"
#include "top.glsl"
// Kernel top_maxima: maxima of blocks of columns, and sums of exponentials where they are asked for. A workgroup has a block of a row.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Floats x; Asks asks; Uints maxima; Floats sums; int stride, blocks; } g;
shared uint top;
void main() {
  int i = int(gl_LocalInvocationID.x), b = int(gl_WorkGroupID.x), r = int(gl_WorkGroupID.y), c = b * BLOCK + i;
  Ask a = g.asks.v[r];
  if (a.k == 0 || b * BLOCK >= a.cols) return;
  if (i == 0) top = 0u;
  barrier();
  uint own = c < a.cols ? ordered(g.x.v[r * g.stride + c]) : 0u;
  atomicMax(top, own);
  barrier();
  if (i == 0) g.maxima.v[r * g.blocks + b] = top;
  if (a.sum == 0) return;
  float sum = wideSum(share(own, min(top, HIGHEST)));
  if (i == 0) g.sums.v[r * g.blocks + b] = sum;
}
