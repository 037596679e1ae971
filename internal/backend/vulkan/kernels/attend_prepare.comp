#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "attend.glsl"
#include "lanes.glsl"
// Kernel attend_prepare: norms and rotation of queries and keys, and the new rows of pages, rounded to codes if these have 8 bits. A
// workgroup has a head of a row: queries first, then keys, then values. Heads have at most 1024 numbers.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Call call; Layer a; } g;
shared float y[1024 + 2 * 64];
shared uint top;
shared int ignored;

// quantized rounds n numbers of y from first on like the CPU's quantizeGroup: code i goes to to[i*step], with the bits of flip
// changed. It returns the scale.
float quantized(int first, int n, Bytes to, int step_, uint flip) {
  int i = int(gl_LocalInvocationID.x);
  barrier();
  if (i == 0) top = 0u;
  barrier();
  uint own = 0u;
  for (int c = i; c < n; c += 64) own = max(own, floatBitsToUint(y[first + c]) & 0x7fffffffu);
  atomicMax(top, own);
  barrier();
  float most = uintBitsToFloat(top), inverse = quot(127.0, most);
  bool no = top == 0u || top >= 0x7f800000u || floatBitsToUint(inverse) == 0x7f800000u;
  for (int c = i; c < n; c += 64) {
    int code = no ? 0 : clamp(rounded(mul(y[first + c], inverse)), -127, 127);
    to.v[c * step_] = uint8_t((uint(code) ^ flip) & 255u);
  }
  return top >= 0x7f800000u ? uintBitsToFloat(0x7fc00000u) : no ? 0.0 : quot(most, 127.0);
}

void main() {
  Layer a = g.a;
  int i = int(gl_LocalInvocationID.x), head = int(gl_WorkGroupID.x), r = int(gl_WorkGroupID.y), share = a.heads / a.kvHeads;
  if (a.queries == 0) head += a.heads;
  bool query = head < a.heads, value = head >= a.heads + a.kvHeads, coded = a.kind == I8;
  int owner = g.call.rowSeq.v[r];
  if (owner < 0) return;
  int kv = query ? head / share : value ? head - a.heads - a.kvHeads : head - a.heads;
  int n0 = value ? a.value : a.key, n1 = value ? 0 : a.tail; // numbers of the two parts
  int whole0 = coded && !value ? keyGroups(a) * CODED : n0, whole1 = coded && !value ? (groupsOf(a) - keyGroups(a)) * CODED : n1;
  Floats x = query ? a.q : value ? a.v : a.k;
  int from = query ? r * a.qStride + head * a.head : value ? r * a.vStride + kv * a.value : r * a.kStride + kv * (a.key + a.tail);
  Floats gain = query ? a.qNorm : a.kNorm;
  bool normed = !value && !none(gain);
  float scale = 0.0;
  if (normed) {
    float s = 0.0;
    if (i < 16)
      for (int c = i; c < a.key; c += 16) s = fused(x.v[from + c], x.v[from + c], s);
    scale = rsqrt32(add(quot(sum16(s), float(a.key)), a.eps));
  }
  for (int c = i; c < whole0; c += 64) y[c] = c >= n0 ? 0.0 : normed ? mul(mul(x.v[from + c], scale), gain.v[c]) : x.v[from + c];
  for (int c = i; c < whole1; c += 64) y[whole0 + c] = c < n1 ? x.v[from + a.key + c] : 0.0;
  barrier();
  int turned = a.latent != 0 ? whole0 : 0;
  for (int j = i; j < (value ? 0 : a.pairs); j += 64) {
    int p = turned + (a.interleaved != 0 ? 2 * j : j), q = a.interleaved != 0 ? p + 1 : p + a.pairs;
    float c = a.rotation.v[2 * r * a.pairs + j], s = a.rotation.v[(2 * r + 1) * a.pairs + j], u = y[p], v = y[q];
    y[p] = fused(u, c, negated(mul(v, s)));
    y[q] = fused(v, c, mul(u, s));
  }
  barrier();
  if (query && !coded) {
    int to = (r * a.heads + head) * (a.key + a.tail);
    for (int c = i; c < a.key + a.tail; c += 64) a.floats.v[to + c] = y[c];
    return;
  }
  Seq s = g.call.seq.v[owner];
  int pos = s.pos + r - s.first, slot = pos % PAGE, at = (r * a.heads + head) * groupsOf(a);
  uint64_t page = query ? 0ul : g.call.page.v[s.pages + pos / PAGE]; // of a query there may be none
  for (int which = 0; which < (n1 > 0 ? 2 : 1); which++) {
    int first = which == 1 ? whole0 : 0, all = which == 1 ? whole1 : whole0, count = which == 1 ? n1 : n0;
    Bytes rows = rowsOf(a, page, value ? 1 : which, kv);
    if (!coded) {
      for (int c = i; c < count; c += 64) {
        if (a.kind == F32) Floats(uint64_t(rows)).v[slot * count + c] = y[first + c];
        else Halves(uint64_t(rows)).v[slot * count + c] = uint16_t(toF16(y[first + c]));
      }
      continue;
    }
    // Latent rows and values have one scale, others one for each group.
    int group = query || !value && a.latent == 0 ? CODED : all, before = which == 1 ? keyGroups(a) : 0;
    for (int n = 0; n * group < all; n++) {
      uint64_t to = query ? uint64_t(a.codes) + uint64_t((at + before + n) * CODED) : uint64_t(rows) + uint64_t(value ? slot : slot * all + n * group);
      float by = quantized(first + n * group, group, Bytes(to), value ? PAGE : 1, query || value ? 0u : 0x80u);
      if (i > 0) continue;
      if (query) a.scales.v[at + before + n] = mul(by, a.scale);
      else Floats(uint64_t(rows) + uint64_t(PAGE * (value ? (a.value + 15) / 16 * 16 : all))).v[n * PAGE + slot] = by;
    }
  }
}
