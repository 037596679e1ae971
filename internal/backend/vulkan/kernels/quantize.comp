#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "codes.glsl"
// Kernel quantize: dynamic symmetric int8 quantization of activations by groups of columns. A workgroup has a group of a row.
// Tails are [groups][tailRows]: the scale and the scaled sum of the codes.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Floats x; Bytes codes; Pairs tails; int xStride, codeStride, cols, group, tailRows; } g;
shared uint top;
shared int total;
void main() {
  int i = int(gl_LocalInvocationID.x), row = int(gl_WorkGroupID.y), first = int(gl_WorkGroupID.x) * g.group, end = min(g.cols, first + g.group);
  if (i == 0) top = 0u, total = 0;
  barrier();
  uint own = 0u;
  for (int c = first + i; c < end; c += 64) own = max(own, floatBitsToUint(g.x.v[row * g.xStride + c]) & 0x7fffffffu);
  atomicMax(top, own);
  barrier();
  Codes k = codesOf(top);
  int sum = 0;
  for (int c = first + i; c < end; c += 64) {
    int n = codeOf(k, g.x.v[row * g.xStride + c]);
    g.codes.v[row * g.codeStride + c] = uint8_t(n & 255);
    sum += n;
  }
  atomicAdd(total, sum);
  barrier();
  if (i == 0) g.tails.v[int(gl_WorkGroupID.x) * g.tailRows + row] = vec2(k.scale, mul(float(total), k.scale));
}
