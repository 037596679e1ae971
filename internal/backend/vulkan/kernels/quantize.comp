#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "codes.glsl"
// Kernel quantize: dynamic symmetric int8 quantization of activations by groups of columns, a multiple of 4. A workgroup has 16 groups
// of a row, 16 threads each. Tails are [groups][tailRows]: the scale and the scaled sum of the codes.
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args { Floats x; Bytes codes; Pairs tails; int xStride, codeStride, cols, group, tailRows; } g;
shared uint tops[16];
shared int totals[16];
shared float factors[16][2];
void main() {
  int lane = int(gl_LocalInvocationID.x) & 15, slot = int(gl_LocalInvocationID.x) / 16, row = int(gl_WorkGroupID.y), n = int(gl_WorkGroupID.x) * 16 + slot;
  int first = n * g.group, end = min(g.cols, first + g.group), from = row * g.xStride;
  if (lane == 0) tops[slot] = 0u, totals[slot] = 0;
  barrier();
  uint own = 0u;
  for (int c = first + 4 * lane; c < end; c += 64)
    for (int i = 0; i < 4; i++)
      if (c + i < end) own = max(own, floatBitsToUint(g.x.v[from + c + i]) & 0x7fffffffu);
  if (own != 0u) atomicMax(tops[slot], own);
  barrier();
  if (lane < 2) factors[slot][lane] = factorOf(tops[slot], lane == 1);
  barrier();
  float factor = factors[slot][0];
  int sum = 0;
  for (int c = first + 4 * lane; c < end; c += 64) {
    uint codes = 0u;
    for (int i = 0; i < 4; i++) {
      int code = c + i < end ? codeOf(factor, g.x.v[from + c + i]) : 0;
      codes |= uint(code & 255) << 8 * i;
      sum += code;
    }
    Uints(uint64_t(g.codes) + uint64_t(row) * uint64_t(g.codeStride) + uint64_t(c)).v[0] = codes;
  }
  if (sum != 0) atomicAdd(totals[slot], sum);
  barrier();
  if (lane > 0 || first >= end) return;
  g.tails.v[n * g.tailRows + row] = vec2(factors[slot][1], mul(float(totals[slot]), factors[slot][1]));
}
