#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "lanes.glsl"
#include "delta.glsl"
// Kernel delta_mix: Gated DeltaNet before the recurrence: causal convolution, L2 norm of queries and keys, decay and beta. A workgroup
// has a key head of a row, and as many value heads as belong to one. Keys have at most 256 numbers.
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args {
  Call call;
  Floats qkv, a, b, conv, rate, bias, mixed;
  int layer, qkvStride, aStride, bStride, convStride, keyHeads, valueHeads, keys, values, taps, rows;
} g;
shared float head[512];
float dot16(int x, int y) {
  float s = 0.0;
  int i = int(gl_LocalInvocationID.x);
  if (i < 16)
    for (int c = i; c < g.keys; c += 16) s = fused(head[x + c], head[y + c], s);
  return sum16(s);
}
void main() {
  int i = int(gl_LocalInvocationID.x), m = int(gl_WorkGroupID.x), r = int(gl_WorkGroupID.y), share = g.valueHeads / g.keyHeads, keys = g.keys;
  int owner = g.call.rowSeq.v[r];
  if (owner < 0) return;
  Seq s = g.call.seq.v[owner];
  Recurrent mem = memoryOf(g.call, s, g.layer);
  int key = g.rows * g.keyHeads * keys, value = 2 * key, kqs = value + g.rows * g.valueHeads * g.values, decays = kqs + g.rows * g.keyHeads, betas = decays + g.rows * g.valueHeads;
  for (int j = i; j < 2 * keys + share * g.values; j += 256) {
    int c = j < keys ? m * keys + j : j < 2 * keys ? (g.keyHeads + m) * keys + j - keys : 2 * g.keyHeads * keys + m * share * g.values + j - 2 * keys;
    float sum = 0.0;
    for (int t = 0; t < g.taps; t++) {
      float x = tokenInput(s, mem, g.qkv, g.qkvStride, g.taps, r - s.first - (g.taps - 1) + t, c), w = g.conv.v[t * g.convStride + c];
      sum = t == 0 ? mul(w, x) : fused(w, x, sum);
    }
    sum = silu32(sum);
    if (j < 2 * keys) head[j] = sum;
    else g.mixed.v[value + (r * g.valueHeads + m * share) * g.values + j - 2 * keys] = sum;
  }
  barrier();
  float ofQuery = mul(rsqrt32(add(dot16(0, 0), 1e-6)), rsqrt32(float(keys))), ofKey = rsqrt32(add(dot16(keys, keys), 1e-6));
  for (int j = i; j < 2 * keys; j += 256) head[j] = mul(head[j], j < keys ? ofQuery : mul(ofKey, 1.0));
  barrier();
  for (int j = i; j < keys; j += 256) {
    g.mixed.v[(r * g.keyHeads + m) * keys + j] = head[j];
    g.mixed.v[key + (r * g.keyHeads + m) * keys + j] = head[keys + j];
  }
  float kq = dot16(keys, 0);
  if (i == 0) g.mixed.v[kqs + r * g.keyHeads + m] = kq;
  for (int j = i; j < share; j += 256) {
    int h = m * share + j;
    g.mixed.v[decays + r * g.valueHeads + h] = exp32(mul(g.rate.v[h], softplus32(add(g.a.v[r * g.aStride + h], g.bias.v[h]))));
    g.mixed.v[betas + r * g.valueHeads + h] = sigmoid32(g.b.v[r * g.bStride + h]);
  }
}
