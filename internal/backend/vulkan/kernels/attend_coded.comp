#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "bits.glsl"
#include "memory.glsl"
#include "attend.glsl"
// Kernel attend_coded: attend for many rows over pages of codes, with keys and values of at most 256 numbers. A workgroup has a head of
// 16 rows of a sequence, which share what is loaded of a page. Products of softmax weights, of 16 bits, and values are two sums of bytes.
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args { Call call; Layer a; } g;
#include "attend_codes.glsl"
const int QUERIES = 16, WIDE = 256, QUADS = CODED / 16;
shared uvec4 query[QUERIES][WIDE / 16];
shared float queryScales[QUERIES][WIDE / CODED];
shared uvec4 panel[PAGE][QUADS + 1]; // a group of the keys
shared float scores[QUERIES][PAGE];
shared uint rounds[QUERIES][PAGE];   // softmax weights
shared uvec4 low[QUERIES][QUADS], high[QUERIES][QUADS]; // bytes of the rounded weights
shared float lanes[QUERIES][16], tops[QUERIES], weights[QUERIES], mores[QUERIES], olds[QUERIES];
shared uint mosts[QUERIES];
shared ivec2 sees[QUERIES];          // positions

// keyQuad is 16 codes of a key from a column of a group on, and valueQuad those of a column of the values from a position on.
uvec4 keyQuad(uint64_t rows, int groups, int k, int group, int c) {
  if (g.a.kind == I8) return Quads(rows + uint64_t((k * groups + group) * CODED + c)).v[0] ^ 0x80808080u;
  uvec4 list;
  for (int i = 0; i < 4; i++) {
    uint four = 0u;
    for (int j = 0; j < 4; j++) four |= (uint(keyCode(Bytes(rows), groups, k, group * CODED + c + 4 * i + j)) & 255u) << 8 * j;
    list[i] = four;
  }
  return list;
}
uvec4 valueQuad(uint64_t rows, int k, int d) {
  if (g.a.kind == I8) return Quads(rows + uint64_t(d * PAGE + k)).v[0];
  uvec4 list;
  for (int i = 0; i < 4; i++) {
    uint four = 0u;
    for (int j = 0; j < 4; j++) four |= (uint(valueCode(Bytes(rows), k + 4 * i + j, d)) & 255u) << 8 * j;
    list[i] = four;
  }
  return list;
}

void main() {
  Layer a = g.a;
  int t = int(gl_LocalInvocationID.x), h = int(gl_WorkGroupID.x), first = int(gl_WorkGroupID.y), owner = g.call.rowSeq.v[first];
  if (owner < 0) return;
  Seq s = g.call.seq.v[owner];
  if ((first - s.first) % QUERIES != 0) return;
  int rows = min(QUERIES, s.n - (first - s.first)), kv = h / (a.heads / a.kvHeads), groups = keyGroups(a), last = 0, page0 = 1 << 30;
  if (t < QUERIES) {
    int pos = s.pos + first + t - s.first;
    sees[t] = t < rows ? ivec2(a.window > 0 ? max(0, pos + 1 - a.window) : 0, min(s.pos + s.n, pos + a.ahead)) : ivec2(0);
    tops[t] = uintBitsToFloat(0xff800000u), weights[t] = 0.0;
  }
  for (int i = t; i < QUERIES * groups * QUADS; i += 256) {
    int n = i / (groups * QUADS), c = i % (groups * QUADS);
    query[n][c] = n < rows ? Quads(uint64_t(a.codes) + uint64_t(((first + n) * a.heads + h) * groups * CODED + 16 * c)).v[0] : uvec4(0u);
  }
  for (int i = t; i < QUERIES * groups; i += 256) {
    int n = i / groups;
    queryScales[n][i % groups] = n < rows ? a.scales.v[((first + n) * a.heads + h) * groups + i % groups] : 0.0;
  }
  barrier();
  for (int n = 0; n < rows; n++) last = max(last, sees[n].y), page0 = min(page0, sees[n].x / PAGE);
  float sums[QUERIES];
  [[unroll]] for (int n = 0; n < QUERIES; n++) sums[n] = 0.0;
  int x = t & 31, y = t / 32; // queries y and y+8, positions x and x+32
  int keyBytes = groups * (a.kind == I4 ? PACKED : CODED), valueBytes = a.kind == I4 ? (a.value + CODED - 1) / CODED * PACKED : (a.value + 15) / 16 * 16;
  for (int p = page0; p * PAGE < last; p++) {
    uint64_t page = g.call.page.v[s.pages + p];
    uint64_t rows0 = uint64_t(rowsOf(a, page, 0, kv)), rows1 = uint64_t(rowsOf(a, page, 1, kv));
    float own[2][2] = float[][](float[](0.0, 0.0), float[](0.0, 0.0));
    for (int group = 0; group < groups; group++) {
      barrier();
      panel[t / QUADS][t % QUADS] = keyQuad(rows0, groups, t / QUADS, group, t % QUADS * 16);
      barrier();
      int sum[2][2] = int[][](int[](0, 0), int[](0, 0));
      for (int q = 0; q < QUADS; q++)
        [[unroll]] for (int i = 0; i < 2; i++) {
          uvec4 u = query[y + 8 * i][group * QUADS + q];
          [[unroll]] for (int j = 0; j < 2; j++) {
            uvec4 k = panel[x + 32 * j][q];
            sum[i][j] += DOT(u.x, k.x) + DOT(u.y, k.y) + DOT(u.z, k.z) + DOT(u.w, k.w);
          }
        }
      for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
          own[i][j] = fused(mul(float(sum[i][j]), queryScales[y + 8 * i][group]), Floats(rows0 + uint64_t(PAGE * keyBytes)).v[group * PAGE + x + 32 * j], own[i][j]);
    }
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++) scores[y + 8 * i][x + 32 * j] = own[i][j];
    barrier();
    // A query has 16 threads here.
    int n = t / 16, lane = t & 15, from = max(0, sees[n].x - p * PAGE), to = min(PAGE, sees[n].y - p * PAGE);
    bool visible = p >= sees[n].x / PAGE && to > from;
    float highest = uintBitsToFloat(0xff800000u), e[4], v[4];
    for (int k = from; k < to; k++)
      if (scores[n][k] > highest) highest = scores[n][k];
    for (int i = 0; i < 4; i++) {
      int k = lane + 16 * i;
      bool seen = visible && k >= from && k < to;
      e[i] = seen ? expDown(sub(scores[n][k], highest)) : 0.0;
      v[i] = seen ? mul(e[i], Floats(rows1 + uint64_t(PAGE * valueBytes)).v[k]) : 0.0;
    }
    lanes[n][lane] = add(add(add(e[0], e[1]), e[2]), e[3]);
    if (lane == 0) mosts[n] = 0u;
    barrier();
    for (int i = 0; i < 4; i++) atomicMax(mosts[n], floatBitsToUint(v[i]));
    for (int w = 8; w > 0; w >>= 1) {
      barrier();
      if (lane < w) lanes[n][lane] = add(lanes[n][lane], lanes[n][lane + w]);
    }
    barrier();
    float most = uintBitsToFloat(mosts[n]), inverse = most >= 7.888609052210118e-31 ? quot(65535.0, most) : 0.0;
    for (int i = 0; i < 4; i++) rounds[n][lane + 16 * i] = floatBitsToUint(add(mul(v[i], inverse), 12582912.0)) & 0xffffu;
    if (lane == 0) {
      float old = 0.0, more = 1.0, all = highest > tops[n] ? highest : tops[n];
      if (visible) {
        old = expDown(sub(tops[n], all)), more = expDown(sub(highest, all));
        weights[n] = fused(lanes[n][0], more, mul(weights[n], old)), tops[n] = all;
      }
      mores[n] = mul(more, quot(most, 65535.0)), olds[n] = visible ? old : -1.0; // -1: none of the query's pages
    }
    barrier();
    if (t < QUERIES * QUADS * 4) {
      int m = t / (QUADS * 4), word = t % (QUADS * 4);
      uint lows = 0u, highs = 0u;
      for (int j = 0; j < 4; j++) {
        uint c = rounds[m][4 * word + j];
        lows |= (c & 255u) << 8 * j, highs |= (c >> 8) << 8 * j;
      }
      low[m][word / 4][word & 3] = lows, high[m][word / 4][word & 3] = highs;
    }
    barrier();
    if (t < a.value) {
      int lows[QUERIES], highs[QUERIES];
      [[unroll]] for (int m = 0; m < QUERIES; m++) lows[m] = highs[m] = 0;
      for (int q = 0; q < QUADS; q++) {
        uvec4 codes = valueQuad(rows1, 16 * q, t);
        [[unroll]] for (int m = 0; m < QUERIES; m++) {
          uvec4 l = low[m][q], u = high[m][q];
          lows[m] += DOTU(codes.x, l.x) + DOTU(codes.y, l.y) + DOTU(codes.z, l.z) + DOTU(codes.w, l.w);
          highs[m] += DOTU(codes.x, u.x) + DOTU(codes.y, u.y) + DOTU(codes.z, u.z) + DOTU(codes.w, u.w);
        }
      }
      uint tested = 0u; // queries whose operations are tested, one after another: the tests are long
      [[unroll]] for (int m = 0; m < QUERIES; m++) {
        float x = float(lows[m] + 256 * highs[m]), old = mul(sums[m], olds[m]), sum = fusedPlain(x, mores[m], old);
        if (olds[m] >= 0.0 && (LEVEL == 2u || LEVEL >= 3u && (small(mores[m]) || small(old) || tiny(sum)))) tested |= 1u << m;
        else if (olds[m] >= 0.0) sums[m] = sum;
      }
      if (tested != 0u)
        [[dont_unroll]] for (int n = 0; n < QUERIES; n++) {
          if ((tested >> n & 1u) == 0u) continue;
          float x = 0.0, sum = 0.0;
          [[unroll]] for (int m = 0; m < QUERIES; m++)
            if (m == n) x = float(lows[m] + 256 * highs[m]), sum = sums[m];
          sum = fused(x, mores[n], mul(sum, olds[n]));
          [[unroll]] for (int m = 0; m < QUERIES; m++)
            if (m == n) sums[m] = sum;
        }
    }
    barrier();
  }
  for (int n = 0; n < QUERIES; n++) {
    if (n >= rows || t >= a.value) break;
    float sum = 0.0;
    [[unroll]] for (int m = 0; m < QUERIES; m++)
      if (m == n) sum = sums[m];
    int r = first + n;
    float v = quot(sum, weights[n]);
    if (a.gate != 0) v = mul(v, sigmoid32(a.q.v[r * a.qStride + h * a.head + a.key + t]));
    a.dst.v[r * a.dstStride + h * a.value + t] = v;
  }
}
