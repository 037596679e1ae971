// Dynamic symmetric int8 quantization of a group of activations, whose largest magnitude has the bits top. factorOf is what turns numbers
// into codes, or codes back into numbers. A quotient takes long: two threads compute the two. A group without a finite quotient of 127 has
// codes of zero; if it is not finite itself, its numbers are NaN.
float factorOf(uint top, bool back) {
  if (top <= 0x02fe0000u || top >= 0x7f800000u) return back && top >= 0x7f800000u ? uintBitsToFloat(0x7fc00000u) : 0.0;
  float most = uintBitsToFloat(top);
  return quot(back ? most : 127.0, back ? 127.0 : most);
}
int codeOf(float factor, float x) { return floatBitsToUint(factor) == 0u ? 0 : clamp(rounded(mul(x, factor)), -127, 127); }
