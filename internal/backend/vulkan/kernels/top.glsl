// The highest numbers of rows: see backend.Backend.Top. Blocks of 64 columns have a maximum each; the K-th highest of those is a lower
// bound of the listed numbers. top.go writes Ask and reads the answers.
struct Ask { int cols, k, room, sum; };
struct Answer { float low; int count; float sum; int unused; };
struct Listed { int id; float logit; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Asks { Ask v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Answers { Answer v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer List { Listed v[]; };
const int BLOCK = 64;
const uint LOWEST = 0x00800000u, HIGHEST = 0xff7fffffu; // ordered, of -MaxFloat32 and MaxFloat32

// ordered maps numbers to integers in the same order, zeros of both signs to one, NaN below everything.
uint ordered(float z) {
  uint b = floatBitsToUint(z);
  if ((b & 0x7fffffffu) > 0x7f800000u) return 0u;
  if ((b & 0x7fffffffu) == 0u) b = 0u;
  return b ^ (uint(int(b) >> 31) | 0x80000000u);
}
float unordered(uint o) { return uintBitsToFloat(o ^ (uint(int(~o) >> 31) | 0x80000000u)); }

// share is exp(z - top) of an ordered number, 0 of NaN and minus infinity. top is at least as high.
float share(uint z, uint top) { return z < LOWEST ? 0.0 : exp32(sub(unordered(min(z, HIGHEST)), unordered(top))); }
