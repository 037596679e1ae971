// The arithmetic of package exactmath. Every operation of floats goes through add, sub, mul, quot, root and fused:
// package spirv checks that modules have no others.
//
// A device computes some of them wrong, so there are levels. LEVEL is that of the pipeline:
//   0  everything by the device's instructions
//   1  fused by float64
//   2  fused by integers
//   3  fused by the instruction or, where numbers are near subnormal, by integers
//   4  as 3, and additions and products likewise
//   5  as 1, where numbers are near subnormal by integers
//   6  as 3, but by the instruction in functions where subnormal numbers do not matter
#extension GL_EXT_spirv_intrinsics : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_explicit_arithmetic_types_float64 : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require

layout(constant_id = 0) const uint LEVEL = 0;

spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6016, 6018, 6019], id = 4450)
int sdot4(int a, int b, spirv_literal int format);
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6016, 6018, 6019], id = 4452)
int sudot4(int a, uint b, spirv_literal int format);
#define DOT(a, b) sdot4(int(a), int(b), 0)
#define DOTU(a, b) sudot4(int(a), uint(b), 0) // b is unsigned

float fusedInt(float a, float b, float c);
// guarded is removed from modules for other levels than 4: a compiler would put its code into every addition and product.
float guarded(float a, float b, float c) { return fusedInt(a, b, c); }
// small reports whether a number that is not zero is subnormal, or about to be.
bool small(float x) { uint b = floatBitsToUint(x) << 1; return b - 1u < 0x01ffffffu; }
// tiny is small, zeros included: what a device that flushes gives for a result that is subnormal.
bool tiny(float x) { return floatBitsToUint(x) << 1 < 0x02000000u; }
float add(float a, float b) {
  precise float r = a + b;
  if (LEVEL == 4u && (small(a) || small(b) || tiny(r))) r = guarded(a, 1.0, b);
  return r;
}
float negated(float x) { return uintBitsToFloat(floatBitsToUint(x) ^ 0x80000000u); }
float sub(float a, float b) {
  if (LEVEL == 4u) return add(a, negated(b));
  precise float r = a - b;
  return r;
}
float mul(float a, float b) {
  precise float r = a * b;
  if (LEVEL == 4u && (small(a) || small(b) || tiny(r))) r = guarded(a, b, uintBitsToFloat(0x80000000u));
  return r;
}

// fusedInt is a*b+c rounded once, by integers: any device, any mode of subnormals.
uint roundShift(uint64_t m, int s, bool sticky) { // m >> s to nearest even; sticky: there is more below
  if (s <= 0) return uint(m << -s);
  if (s > 63) return 0u;
  uint64_t q = m >> s, half_ = uint64_t(1) << (s - 1), rest = m & ((half_ << 1) - 1);
  if (rest > half_ || rest == half_ && (sticky || (q & 1) == 1)) q++;
  return uint(q);
}
// pack rounds sign * m * 2^e, plus a little if sticky, to float32. m is not zero.
float packFloat(bool neg, uint64_t m, int e, bool sticky) {
  int hi = uint(m >> 32) != 0u ? 32 + findMSB(uint(m >> 32)) : findMSB(uint(m));
  int top = hi + e; // exponent of the leading digit
  uint sign = neg ? 0x80000000u : 0u;
  int low = max(top - 23, -149); // exponent of the last digit kept
  uint q = roundShift(m, low - e, sticky);
  uint bits = low == -149 ? q : q + (uint(low + 149) << 23); // the leading digit adds one to the exponent
  if (bits >= 0x7f800000u) bits = 0x7f800000u;
  return uintBitsToFloat(sign | bits);
}
void unpackFloat(float x, out bool neg, out uint m, out int e) {
  uint b = floatBitsToUint(x);
  neg = (b >> 31) == 1u;
  uint ex = b >> 23 & 255u;
  m = b & 0x7fffffu;
  if (ex > 0u) m |= 0x800000u;
  e = int(max(ex, 1u)) - 150;
}
float fusedInt(float a, float b, float c) {
  uint ba = floatBitsToUint(a) & 0x7fffffffu, bb = floatBitsToUint(b) & 0x7fffffffu, bc = floatBitsToUint(c) & 0x7fffffffu;
  bool na, nb, nc; uint ma, mb, mc; int ea, eb, ec;
  if (ba >= 0x7f800000u || bb >= 0x7f800000u || bc >= 0x7f800000u) { precise float p = a * b; precise float r = p + c; return r; } // not finite
  unpackFloat(a, na, ma, ea); unpackFloat(b, nb, mb, eb); unpackFloat(c, nc, mc, ec);
  bool np = na != nb;
  uint64_t p = uint64_t(ma) * uint64_t(mb);
  int ep = ea + eb;
  if (p == 0) {
    if (mc != 0u) return c;
    return uintBitsToFloat(np && nc ? 0x80000000u : 0u);
  }
  if (mc == 0u) return packFloat(np, p, ep, false);
  uint64_t z = uint64_t(mc);
  // Both to 62 digits, then to the exponent of the larger.
  int sp = 61 - (uint(p >> 32) != 0u ? 32 + findMSB(uint(p >> 32)) : findMSB(uint(p)));
  p <<= sp; ep -= sp;
  int sz = 61 - findMSB(mc);
  z <<= sz; int ez = ec - sz;
  bool sticky = false;
  if (ep < ez || ep == ez && p < z) { uint64_t t = p; p = z; z = t; int u = ep; ep = ez; ez = u; bool n = np; np = nc; nc = n; }
  int d = ep - ez;
  if (d > 0) {
    if (d > 62) { sticky = true; z = 0; }
    else { sticky = (z & ((uint64_t(1) << d) - 1)) != 0; z >>= d; }
  }
  uint64_t s;
  if (np == nc) s = p + z; else s = p - z - (sticky ? 1 : 0); // what was cut off is borrowed
  if (s == 0) return sticky ? packFloat(np, uint64_t(1), ep - 40, true) : 0.0;
  return packFloat(np, s, ep, sticky);
}

// fused64 is removed from modules for devices without float64, and for levels that do not call it.
float fused64(float a, float b, float c) {
  precise double p = double(a) * double(b);
  precise double s = p + double(c);
  precise double t = s - p;
  precise double e1 = s - t, e2 = double(c) - t, e3 = p - e1;
  precise double e = e3 + e2; // what the sum has lost
  uvec2 x = unpackDouble2x32(s), y = unpackDouble2x32(e);
  uint ex = x.y >> 20 & 2047u;
  bool lost = ((y.y & 0x7fffffffu) | y.x) != 0u;
  if (lost && ex < 2047u && (x.x & 1u) == 0u) { // to the neighbor with an odd last digit, after which rounding is right
    bool up = (y.y >> 31) == (x.y >> 31);
    if (up) { x.x += 1u; } else { x.y -= x.x == 0u ? 1u : 0u; x.x -= 1u; }
  }
  // A compiler may take double(float(d)) for d: what is rounded goes through something that it does not know to be zero: grids have one layer.
  return uintBitsToFloat(floatBitsToUint(float(packDouble2x32(x))) ^ gl_WorkGroupID.z);
}

float fused(float a, float b, float c) {
  if (LEVEL == 2u) return fusedInt(a, b, c);
  float r;
  if (LEVEL == 1u || LEVEL == 5u) {
    r = fused64(a, b, c);
  } else {
    precise float x = fma(a, b, c);
    r = x;
  }
  if (LEVEL >= 3u && (small(a) || small(b) || small(c) || tiny(r))) r = fusedInt(a, b, c);
  return r;
}

// Chains of fused operations without a test of each. Numbers that are 0 or not below 2^-38 are multiples of 2^-61, products of two are
// multiples of 2^-122, and so are all sums of those: none of them is subnormal. faint reports whether a number is below that.
bool faint(float x) { uint b = floatBitsToUint(x) << 1; return b - 1u < 0x58ffffffu; }
// fusedPlain is fused without the test, for such chains. LEVEL is not 2.
float fusedPlain(float a, float b, float c) {
  if (LEVEL == 1u || LEVEL == 5u) return fused64(a, b, c);
  precise float x = fma(a, b, c);
  return x;
}
float mulPlain(float a, float b) { precise float r = a * b; return r; }
// fusedNormal is fused where neither operands nor results that are subnormal change what is computed with it. The tests of fused are
// long, and a kernel whose instructions are far apart waits for them.
float fusedNormal(float a, float b, float c) {
  if (LEVEL >= 2u && LEVEL <= 4u) return fused(a, b, c);
  return fusedPlain(a, b, c);
}
// sealed is x: a compiler does not know that grids have one layer. It may take the rest of a quotient, root or product for zero.
float sealed(float x) { return uintBitsToFloat(floatBitsToUint(x) ^ gl_WorkGroupID.z); }

// Numbers from 2^-40 to 2^40 need no other exponents in quot and root: nothing there is subnormal or overflows.
bool middling(uint bits) { return bits - (87u << 23) < 80u << 23; }

// quot is a/b to nearest. The device's quotient is a guess, 2.5 units off by Vulkan's rules. Other numbers than those of middling are
// divided by their mantissas.
float quot(float a, float b) {
  uint ua = floatBitsToUint(a), ub = floatBitsToUint(b), sign = (ua ^ ub) & 0x80000000u;
  ua &= 0x7fffffffu; ub &= 0x7fffffffu;
  float x = uintBitsToFloat(ua), y = uintBitsToFloat(ub);
  bool apart = !middling(ua) || !middling(ub);
  int e = 0; // exponent that x/y lacks
  if (apart) {
    if (ua > 0x7f800000u || ub > 0x7f800000u || ua == ub && (ua == 0u || ua == 0x7f800000u)) return uintBitsToFloat(0x7fc00000u);
    if (ua == 0x7f800000u || ub == 0u) return uintBitsToFloat(sign | 0x7f800000u);
    if (ub == 0x7f800000u || ua == 0u) return uintBitsToFloat(sign);
    int ea = int(ua >> 23), eb = int(ub >> 23);
    if (ea == 0) { int s = 23 - findMSB(ua); ua <<= s; ea = 1 - s; }
    if (eb == 0) { int s = 23 - findMSB(ub); ub <<= s; eb = 1 - s; }
    x = uintBitsToFloat(ua & 0x7fffffu | 0x3f800000u), y = uintBitsToFloat(ub & 0x7fffffu | 0x3f800000u);
    e = ea - eb;
  }
  precise float inverse = 1.0 / y;
  float q = sealed(mul(x, inverse));
  q = fusedNormal(fusedNormal(negated(q), y, x), inverse, q); // within a unit now
  float r = fusedNormal(negated(q), y, x);              // exact
  // Half a unit of q times y, exact: a quotient below a power of two has smaller units than that power.
  float halfUnit = mul(y, uintBitsToFloat((floatBitsToUint(q) & 0x7f800000u) - (24u << 23)));
  if (r > halfUnit) { q = uintBitsToFloat(floatBitsToUint(q) + 1u); r = sub(r, mul(2.0, halfUnit)); }
  else if (negated(r) > halfUnit) { q = uintBitsToFloat(floatBitsToUint(q) - 1u); r = add(r, mul(2.0, halfUnit)); }
  if (!apart) return uintBitsToFloat(sign | floatBitsToUint(q));
  e += int(floatBitsToUint(q) >> 23);
  uint m = floatBitsToUint(q) & 0x7fffffu | 0x800000u;
  if (e >= 255) return uintBitsToFloat(sign | 0x7f800000u);
  if (e > 0) return uintBitsToFloat(sign | uint(e) << 23 | m & 0x7fffffu);
  int s = 1 - e; // digits that a subnormal lacks
  if (s > 25) return uintBitsToFloat(sign);
  uint k = m >> s, low = m & ((1u << s) - 1u), mid = 1u << (s - 1);
  if (low > mid || low == mid && (r > 0.0 || r == 0.0 && (k & 1u) == 1u)) k++;
  return uintBitsToFloat(sign | k);
}

// root is sqrt(x) to nearest, of other numbers than those of middling by one in [1, 4).
float root(float x) {
  uint u = floatBitsToUint(x);
  int e = 0; // exponent that the root lacks
  if (!middling(u)) {
    if ((u & 0x7fffffffu) == 0u || u == 0x7f800000u) return x;
    if (u > 0x7f800000u) return uintBitsToFloat(0x7fc00000u);
    e = int(u >> 23);
    if (e == 0) { int s = 23 - findMSB(u); u <<= s; e = 1 - s; }
    e -= 127;
    u = u & 0x7fffffu | uint(127 + (e & 1)) << 23;
    e >>= 1;
  }
  float y = uintBitsToFloat(u);
  precise float g = sqrt(y);
  g = sealed(g);
  precise float half_ = 0.5 / g;
  g = fusedNormal(fusedNormal(negated(g), g, y), half_, g);
  float r = fusedNormal(negated(g), g, y);
  // g + u/2 is too much if g² + g*u + u²/4 > y, u being the unit of y's root: compare r with g*u.
  float gu = mul(g, uintBitsToFloat(((u >> 23) + 1u >> 1) + 40u << 23));
  if (r > gu) g = uintBitsToFloat(floatBitsToUint(g) + 1u);
  else if (r <= negated(gu)) g = uintBitsToFloat(floatBitsToUint(g) - 1u);
  return uintBitsToFloat(floatBitsToUint(g) + uint(e << 23));
}
float rsqrt32(float x) { return quot(1.0, root(x)); }

// tree8 adds eight numbers, halves onto halves.
float tree8(float s[8]) { return add(add(add(s[0], s[4]), add(s[2], s[6])), add(add(s[1], s[5]), add(s[3], s[7]))); }

float pow2(int k) { return intBitsToFloat((k + 127) << 23); }
float exp32(float x) {
  if (x != x) return x;
  if (x < -87.33654) return 0.0;
  if (x > 88.72283) return uintBitsToFloat(0x7f800000u);
  float n = sub(fusedNormal(x, 1.44269504, 12582912.0), 12582912.0);
  float hi = fusedNormal(n, -0.693145751953125, x), lo = mul(n, -1.42860682030941723212e-6), r = add(hi, lo);
  float q = fusedNormal(0.000198909882, r, 0.00139336474);
  q = fusedNormal(q, r, 0.00833331048);
  q = fusedNormal(q, r, 0.0416664667);
  q = fusedNormal(q, r, 0.166666672);
  q = fusedNormal(q, r, 0.5);
  float one = add(1.0, hi), lost = sub(hi, sub(one, 1.0));
  float p = add(one, add(lost, fusedNormal(mul(r, r), q, lo)));
  int k = int(n), h = k >> 1;
  return mul(mul(p, pow2(h)), pow2(k - h));
}
// below0 is x < 0; a comparison may take a subnormal number for zero.
bool below0(float x) { uint b = floatBitsToUint(x); return b > 0x80000000u && b <= 0xff800000u; }
float magnitude(float x) { return uintBitsToFloat(floatBitsToUint(x) & 0x7fffffffu); }
float sigmoid32(float x) {
  float a = magnitude(x), e = exp32(negated(a)), q = quot(e, add(1.0, e)), y = fusedNormal(negated(e), q, e);
  if (LEVEL >= 3u && a > 80.0) y = fused(negated(e), q, e);
  return below0(x) ? y : sub(1.0, y);
}
float silu32(float x) {
  float a = magnitude(x), e = exp32(negated(a)), p = sealed(mul(x, e)), q = quot(e, add(1.0, e));
  float y = fusedNormal(negated(p), q, fusedNormal(x, e, negated(p)));
  if (LEVEL >= 3u && floatBitsToUint(a) - 0x21800000u > 0x20800000u) { // not from 2^-60 to 32
    float u = x, v = e;
    y = negated(p);
    [[dont_unroll]] for (int i = 0; i < 2; i++) y = fused(u, v, y), u = negated(p), v = q;
  }
  y = add(p, y);
  return below0(x) ? y : sub(x, y);
}
float softplus32(float x) {
  float a = magnitude(x), y = exp32(negated(a)), s = quot(y, add(2.0, y)), z = mul(s, s);
  float h = fusedNormal(0.117647058823529411765, z, 0.133333333333333333333);
  h = fusedNormal(h, z, 0.153846153846153846154);
  h = fusedNormal(h, z, 0.181818181818181818182);
  h = fusedNormal(h, z, 0.222222222222222222222);
  h = fusedNormal(h, z, 0.285714285714285714286);
  h = fusedNormal(h, z, 0.4);
  h = fusedNormal(h, z, 0.666666666666666666667);
  float t = fusedNormal(negated(z), h, y), l = fusedNormal(negated(s), t, y);
  if (LEVEL >= 3u && a > 80.0) l = y; // z is zero, and s*y below half a unit of y
  return add(floatBitsToInt(x) > 0 ? x : 0.0, l);
}

// atMost is the smaller of a number that is not negative and a limit, NaN for NaN. It compares bits: a compiler makes a minimum of a
// comparison and a choice, which on NVIDIA takes subnormal numbers for zero.
float atMost(float x, float limit) { return floatBitsToUint(x) > floatBitsToUint(limit) && floatBitsToUint(x) <= 0x7f800000u ? limit : x; }
float atLeast0(float x) { return floatBitsToInt(x) > 0 && floatBitsToUint(x) <= 0x7f800000u ? x : 0.0; }

float gelu32(float x) {
  float a = atMost(magnitude(x), 14.0), z = mul(a, a);
  float e = exp32(mul(-0.5, z));
  e = fused(e, mul(-0.5, fused(a, a, negated(z))), e);
  float t = quot(1.0, fused(a, 0.25, 1.0));
  float p = fused(0.0153836033, t, -0.0563454643);
  p = fused(p, t, 0.0366152550);
  p = fused(p, t, 0.0483180834);
  p = fused(p, t, -0.00367795936);
  p = fused(p, t, 0.0953755683);
  p = fused(p, t, 0.0690116361);
  p = fused(p, t, 0.0961508647);
  p = fused(p, t, 0.0994166231);
  p = fused(p, t, 0.0997517922);
  return sub(atLeast0(x), mul(mul(mul(a, t), p), e));
}

float geluTanh32(float x) {
  const float c0 = 1.59576917, c0Lo = -4.53406804e-8, c1 = 0.0713548139, c1Lo = 2.39883240e-9;
  float a = atMost(magnitude(x), 16.0), z = mul(a, a), m = mul(c1, z);
  float low = fused(c1Lo, z, fused(c1, fused(a, a, negated(z)), fused(c1, z, negated(m))));
  float s = add(c0, m), t = sub(s, c0);
  low = add(low, add(add(sub(c0, sub(s, t)), sub(m, t)), c0Lo));
  float v = mul(a, s);
  low = fused(a, low, fused(a, s, negated(v)));
  float e = exp32(negated(v));
  e = fused(e, negated(low), e);
  float p = mul(a, e), y = add(p, fused(negated(p), quot(e, add(1.0, e)), fused(a, e, negated(p))));
  return sub(atLeast0(x), y);
}

// expDown is exp32 of numbers that are not above zero, or NaN.
float expDown(float x) { return exp32(x); }

// f16 is the number of a half, by integers.
float f16(uint h) {
  uint sign = (h & 0x8000u) << 16, e = h >> 10 & 31u, m = h & 1023u;
  if (e == 31u) return uintBitsToFloat(sign | 0x7f800000u | m << 13);
  if (e > 0u) return uintBitsToFloat(sign | (e + 112u) << 23 | m << 13);
  if (m == 0u) return uintBitsToFloat(sign);
  int top = findMSB(m);
  return uintBitsToFloat(sign | uint(top + 103) << 23 | (m << (23 - top) & 0x7fffffu));
}

// toF16 is the half nearest to a number, ties to even, by integers.
uint toF16(float x) {
  uint u = floatBitsToUint(x), sign = u >> 16 & 0x8000u;
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return sign | 0x7e00u;
  if (u >= 0x477ff000u) return sign | 0x7c00u; // rounds to infinity
  if (u < 0x33000000u) return sign;            // to zero, 2^-25 not included
  int e = int(u >> 23) - 112;
  uint m = u & 0x7fffffu | 0x800000u;
  int shift = e > 0 ? 13 : 14 - e;
  uint q = m >> shift, rest = m & ((1u << shift) - 1u), mid = 1u << (shift - 1);
  if (rest > mid || rest == mid && (q & 1u) == 1u) q++;
  return sign | (e > 0 ? q + (uint(e - 1) << 10) : q);
}
