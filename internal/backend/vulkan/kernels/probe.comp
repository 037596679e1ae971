#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
// Kernel probe: the operations of the arithmetic, one after another, over n operands: probe.go compares them.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Floats a, b, c, dst; int n; } g;
void main() {
  int i = int(gl_GlobalInvocationID.x);
  if (i >= g.n) return;
  float a = g.a.v[i], b = g.b.v[i], c = g.c.v[i];
  g.dst.v[i] = add(a, b);
  g.dst.v[g.n + i] = sub(a, b);
  g.dst.v[2 * g.n + i] = mul(a, b);
  g.dst.v[3 * g.n + i] = fused(a, b, c);
  g.dst.v[4 * g.n + i] = quot(a, b);
  g.dst.v[5 * g.n + i] = root(magnitude(a));
  g.dst.v[6 * g.n + i] = exp32(c);
  g.dst.v[7 * g.n + i] = silu32(c);
  g.dst.v[8 * g.n + i] = f16(floatBitsToUint(a) >> 16);
  g.dst.v[9 * g.n + i] = f16(toF16(b));
}
