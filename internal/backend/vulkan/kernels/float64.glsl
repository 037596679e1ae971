// float64 by integers, for draws: results are rounded to nearest as the CPU's, on every device. Results below 2^-1022 are zero: they are
// added to, or compared with, numbers that are far above.
struct Wide { bool neg; int e; uint64_t m; }; // m*2^e; m is 0 or has 53 digits

int highest(uint64_t x) { uint h = uint(x >> 32); return h != 0u ? 32 + findMSB(h) : findMSB(uint(x)); }
const Wide ZERO = Wide(false, -2048, uint64_t(0));
const int ENDLESS = 4096; // exponent of infinity

// nearest rounds m*2^e, plus a little if sticky, which takes at least 55 digits of m.
Wide nearest(bool neg, uint64_t m, int e, bool sticky) {
  if (m == 0) return ZERO;
  int s = highest(m) - 52;
  if (s <= 0) m <<= -s;
  else {
    uint64_t rest = m & ((uint64_t(1) << s) - 1), mid = uint64_t(1) << (s - 1);
    m >>= s;
    if (rest > mid || rest == mid && (sticky || (m & 1) == 1)) m++;
    if (m >> 53 != 0) m >>= 1, s++;
  }
  e += s;
  if (e > 971) return Wide(neg, ENDLESS, uint64_t(1) << 52);
  if (e < -1074) return ZERO;
  return Wide(neg, e, m);
}
Wide wide(uint64_t bits) { // of a float64 that is normal or zero
  int e = int(bits >> 52) & 2047;
  if (e == 0) return ZERO;
  return Wide(bits >> 63 != 0, e == 2047 ? ENDLESS : e - 1075, bits & ((uint64_t(1) << 52) - 1) | uint64_t(1) << 52);
}
Wide wideOf(uint64_t x) { return nearest(false, x, 0, false); }
Wide wideInt(int x) {
  uint m = uint(abs(x));
  if (m == 0u) return ZERO;
  int s = 52 - findMSB(m);
  return Wide(x < 0, -s, uint64_t(m) << s);
}
Wide wideFloat(float x) { // of a number that is finite
  bool neg; uint m; int e;
  unpackFloat(x, neg, m, e);
  if (m == 0u) return ZERO;
  int s = 52 - findMSB(m);
  return Wide(neg, e - s, uint64_t(m) << s);
}
Wide minus(Wide a) { a.neg = !a.neg; return a; }
// product has the high and low 64 digits of a product.
void product(uint64_t a, uint64_t b, out uint64_t hi, out uint64_t lo) {
  uint64_t low = 0xffffffffu, a0 = a & low, a1 = a >> 32, b0 = b & low, b1 = b >> 32;
  uint64_t none_ = a0 * b0, one = a1 * b0 + (none_ >> 32), other = a0 * b1 + (one & low);
  hi = a1 * b1 + (one >> 32) + (other >> 32);
  lo = other << 32 | none_ & low;
}
Wide times(Wide a, Wide b) {
  if (a.m == 0 || b.m == 0) return ZERO;
  uint64_t hi, lo;
  product(a.m, b.m, hi, lo);
  return nearest(a.neg != b.neg, hi << 20 | lo >> 44, a.e + b.e + 44, (lo & ((uint64_t(1) << 44) - 1)) != 0);
}
Wide plus(Wide a, Wide b) {
  if (a.m == 0) return b;
  if (b.m == 0) return a;
  if (a.e < b.e || a.e == b.e && a.m < b.m) { Wide t = a; a = b; b = t; }
  if (a.e >= ENDLESS / 2) return a;
  int d = a.e - b.e;
  uint64_t x = a.m << 9, y = b.m << 9;
  bool sticky = d > 62 || (y & ((uint64_t(1) << d) - 1)) != 0;
  y = d > 62 ? uint64_t(0) : y >> d;
  return nearest(a.neg, a.neg == b.neg ? x + y : x - y - (sticky ? 1 : 0), a.e - 9, sticky);
}
Wide over(Wide a, Wide b) {
  if (a.m == 0) return ZERO;
  uint64_t q = 0, r = a.m;
  for (int i = 0; i < 56; i++) {
    q <<= 1;
    if (r >= b.m) { r -= b.m; q |= 1; }
    r <<= 1;
  }
  return nearest(a.neg != b.neg, q, a.e - b.e - 55, r != 0);
}
// order maps numbers to integers in the same order.
uint64_t order(Wide a) {
  if (a.m == 0) return uint64_t(1) << 63;
  uint64_t b = uint64_t(min(a.e + 1075, 2047)) << 52 | a.m & ((uint64_t(1) << 52) - 1);
  return a.neg ? ~b & ((uint64_t(1) << 63) - 1) : b | uint64_t(1) << 63;
}
bool less(Wide a, Wide b) { return order(a) < order(b); }
// whole is a number that is not negative and below 2^63, without its fraction.
uint64_t whole(Wide a) { return a.e <= -53 ? uint64_t(0) : a.e < 0 ? a.m >> -a.e : a.m << a.e; }
float narrow(Wide a) {
  if (a.m == 0) return 0.0;
  if (a.e > 128) return uintBitsToFloat(a.neg ? 0xff800000u : 0x7f800000u);
  return packFloat(a.neg, a.m, max(a.e, -300), false);
}

const uint64_t TWO_OVER[] = {
  // 21, 19, and so on to 3, and nothing at last
  0x3fb8618618618618ul, 0x3fbaf286bca1af28ul, 0x3fbe1e1e1e1e1e1eul, 0x3fc1111111111111ul, 0x3fc3b13b13b13b14ul,
  0x3fc745d1745d1746ul, 0x3fcc71c71c71c71cul, 0x3fd2492492492492ul, 0x3fd999999999999aul, 0x3fe5555555555555ul, 0ul
};
Wide log64(Wide x) { // exactmath.Log
  int e = x.e + 53; // of a mantissa in [1/2, 1)
  Wide m = Wide(false, -53, x.m);
  if (x.m < 0x16a09e667f3bcdul) m.e++, e--;
  Wide f = plus(m, minus(wideInt(1))), s = over(f, plus(wideInt(2), f)), s2 = times(s, s), r = ZERO;
  for (int i = 0; i < 11; i++) r = plus(times(r, s2), wide(TWO_OVER[i]));
  Wide tail = plus(times(wideInt(e), wide(0x3dea39ef35793c76ul)), minus(times(s, plus(f, minus(r)))));
  return plus(times(wideInt(e), wide(0x3fe62e42fee00000ul)), plus(f, tail));
}
