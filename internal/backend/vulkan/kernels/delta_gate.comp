#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "lanes.glsl"
// Kernel delta_gate: gated RMSNorm of the heads of DeltaNet, in place. A workgroup has a value head of a row.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Call call; Floats dst, z, norm; int dstStride, zStride, values, sigmoidGate; float eps; } g;
shared float head[256];
void main() {
  int i = int(gl_LocalInvocationID.x), h = int(gl_WorkGroupID.x), r = int(gl_WorkGroupID.y), at = r * g.dstStride + h * g.values;
  if (g.call.rowSeq.v[r] < 0) return;
  float s = 0.0;
  for (int first = 0; first < g.values; first += 256) {
    int n = min(256, g.values - first);
    barrier();
    for (int c = i; c < n; c += 64) head[c] = g.dst.v[at + first + c];
    barrier();
    if (i < 16)
      for (int c = i; c < n; c += 16) s = fused(head[c], head[c], s);
  }
  float scale = rsqrt32(add(quot(sum16(s), float(g.values)), g.eps));
  for (int c = i; c < g.values; c += 64) {
    float gate = g.z.v[r * g.zStride + h * g.values + c];
    g.dst.v[at + c] = mul(mul(mul(g.dst.v[at + c], scale), g.norm.v[c]), g.sigmoidGate != 0 ? sigmoid32(gate) : silu32(gate));
  }
}
