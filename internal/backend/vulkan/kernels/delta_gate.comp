#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "lanes.glsl"
#include "codes.glsl"
// Kernel delta_gate: gated RMSNorm of the heads of DeltaNet, in place. A workgroup has a value head of a row. If CODES is 1, it also
// quantizes the head, which is whole groups of at least 16 columns and at most 256 numbers.
layout(constant_id = 1) const int CODES = 0;
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args {
  Call call;
  Floats dst, z, norm;
  int dstStride, zStride, values, sigmoidGate;
  float eps;
  Bytes codes;
  Pairs tails;
  int codeStride, group, tailRows;
} g;
shared float head[256];
shared uint tops[16];
shared int totals[16];
shared float factors[16][2];
shared uint faints; // a number is too small for chains without tests

// addSquares adds the squares of head's first n numbers of a lane to s. Behind them are zeros.
float addSquares(float s, int n) {
  int i = int(gl_LocalInvocationID.x);
  float begin = s;
  if (LEVEL != 2u)
    [[dont_unroll]] for (int c = i; c < n; c += 64) {
      float x[4];
      [[unroll]] for (int j = 0; j < 4; j++) x[j] = head[c + 16 * j];
      [[unroll]] for (int j = 0; j < 4; j++) s = fusedPlain(x[j], x[j], s);
    }
  if (LEVEL == 2u || LEVEL >= 3u && faints != 0u) {
    s = begin;
    [[dont_unroll]] for (int c = i; c < n; c += 16) s = fused(head[c], head[c], s);
  }
  return s;
}

void main() {
  int i = int(gl_LocalInvocationID.x), h = int(gl_WorkGroupID.x), r = int(gl_WorkGroupID.y), at = r * g.dstStride + h * g.values, zs = r * g.zStride + h * g.values;
  if (g.call.rowSeq.v[r] < 0) return;
  float s = 0.0, z = 0.0, norm = 0.0;
  if (CODES == 1 && i < g.values) z = g.z.v[zs + i], norm = g.norm.v[i]; // all is loaded before it is used
  for (int first = 0; first < g.values; first += 256) {
    int n = min(256, g.values - first);
    barrier();
    if (i == 0) faints = 0u;
    barrier();
    float x = i < n ? g.dst.v[at + first + i] : 0.0;
    head[i] = x;
    if (faint(x)) faints = 1u;
    barrier();
    if (i < 16) s = addSquares(s, n);
  }
  float scale = rsqrt32(add(quot(sum16(s), float(g.values)), g.eps));
  if (CODES == 0) {
    for (int c = i; c < g.values; c += 256) {
      float gate = g.z.v[zs + c];
      g.dst.v[at + c] = mul(mul(mul(g.dst.v[at + c], scale), g.norm.v[c]), g.sigmoidGate != 0 ? sigmoid32(gate) : silu32(gate));
    }
    return;
  }
  if (i < 16) tops[i] = 0u, totals[i] = 0;
  barrier();
  bool has = i < g.values;
  float y = mul(mul(mul(head[i], scale), norm), g.sigmoidGate != 0 ? sigmoid32(z) : silu32(z));
  if (has) atomicMax(tops[i / g.group], floatBitsToUint(y) & 0x7fffffffu);
  barrier();
  if (i < 32) factors[i / 2][i & 1] = factorOf(tops[i / 2], (i & 1) == 1);
  barrier();
  if (has) {
    int code = codeOf(factors[i / g.group][0], y);
    g.dst.v[at + i] = y;
    g.codes.v[r * g.codeStride + h * g.values + i] = uint8_t(code & 255);
    atomicAdd(totals[i / g.group], code);
  }
  barrier();
  if (i >= g.values / g.group) return;
  float by = factors[i][1];
  g.tails.v[(h * g.values / g.group + i) * g.tailRows + r] = vec2(by, mul(float(totals[i]), by));
}
