// Dynamic symmetric int8 quantization of a group of activations.
struct Codes { float inverse, scale; bool zeros; };

// codesOf is the quantization of a group whose largest magnitude has these bits.
Codes codesOf(uint top) {
  float most = uintBitsToFloat(top), inverse = quot(127.0, most);
  bool finite = top < 0x7f800000u, zeros = top == 0u || !finite || floatBitsToUint(inverse) == 0x7f800000u;
  return Codes(inverse, zeros ? (finite ? 0.0 : uintBitsToFloat(0x7fc00000u)) : quot(most, 127.0), zeros);
}
int codeOf(Codes k, float x) { return k.zeros ? 0 : clamp(rounded(mul(x, k.inverse)), -127, 127); }
