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
shared uint codes[1024 + 2 * 64]; // of a row that is packed

// quantized rounds n numbers of y from first on like the CPU's quantizeGroup: code i goes to to[i*step], with the bits of flip
// changed, or if it is packed later to codes. It returns the scale.
float quantized(int first, int n, Bytes to, int step_, uint flip, bool packs) {
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
    if (packs) codes[first + c] = (uint(code) ^ flip) & 255u;
    else to.v[c * step_] = uint8_t((uint(code) ^ flip) & 255u);
  }
  return top >= 0x7f800000u ? uintBitsToFloat(0x7fc00000u) : no ? 0.0 : quot(most, 127.0);
}

// packHalf rounds 32 codes to 16 levels, and returns step and low: see packed_generic.go of the CPU.
ivec2 packHalf(int first) {
  int least = 255, most = 0;
  for (int c = 0; c < HALF; c++) least = min(least, int(codes[first + c])), most = max(most, int(codes[first + c]));
  int span = most - least, step_ = min(max((span + 14) / 15, 1), 16), low = min(max(least - ((15 * step_ - span) >> 1), 1), 255 - 15 * step_);
  for (int c = 0; c < HALF; c++) codes[first + c] = uint((2 * (int(codes[first + c]) - low) + step_) / (2 * step_));
  return ivec2(step_, low);
}

// pack writes groups of codes, from first on, to a row of a page of I4.
void pack(int first, int groups, Bytes rows, int slot, bool value) {
  int i = int(gl_LocalInvocationID.x);
  barrier();
  for (int n = i; n < 2 * groups; n += 64) {
    ivec2 range = packHalf(first + n * HALF);
    for (int k = 0; k < 2; k++) {
      int at = value ? n / 2 * PACKED * PAGE + (HALF + 2 * (n & 1) + k) * PAGE + slot : PAGE * groups * HALF + (n / 2 * PAGE + slot) * 4 + 2 * (n & 1) + k;
      rows.v[at] = uint8_t(range[k]);
    }
  }
  barrier();
  for (int n = i; n < groups * HALF; n += 64) {
    int group = n / HALF, c = n % HALF, from = first + group * CODED + c;
    rows.v[value ? group * PACKED * PAGE + c * PAGE + slot : (slot * groups + group) * HALF + c] = uint8_t(codes[from] | codes[from + HALF] << 4);
  }
  barrier();
}

void main() {
  Layer a = g.a;
  int i = int(gl_LocalInvocationID.x), head = int(gl_WorkGroupID.x), r = int(gl_WorkGroupID.y), share = a.heads / a.kvHeads;
  if (a.queries == 0) head += a.heads;
  bool query = head < a.heads, value = head >= a.heads + a.kvHeads, coded = isCoded(a), packs = a.kind == I4 && !query;
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
  for (int c = i; c < n0; c += 64) y[c] = x.v[from + c];
  barrier();
  if (normed) {
    float s = 0.0;
    if (i < 16)
      for (int c = i; c < a.key; c += 16) s = fused(y[c], y[c], s);
    scale = rsqrt32(add(quot(sum16(s), float(a.key)), a.eps));
  }
  for (int c = i; c < whole0; c += 64) y[c] = c >= n0 ? 0.0 : normed ? mul(mul(y[c], scale), gain.v[c]) : y[c];
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
      float by = quantized(first + n * group, group, Bytes(to), value ? PAGE : 1, query || value && !packs ? 0u : 0x80u, packs);
      if (i > 0) continue;
      if (query) a.scales.v[at + before + n] = mul(by, a.scale);
      else Floats(uint64_t(rows) + uint64_t(PAGE * (packs ? (all + CODED - 1) / CODED * PACKED : value ? (a.value + 15) / 16 * 16 : all))).v[n * PAGE + slot] = by;
    }
    if (!packs) continue;
    int groups = (all + CODED - 1) / CODED;
    for (int c = all + i; c < groups * CODED; c += 64) codes[first + c] = 0x80u;
    pack(first, groups, rows, slot, value);
  }
}
