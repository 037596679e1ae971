// A layer of attention, and which positions its rows see. attend.go writes struct Layer.
const int PAGE = 64, CODED = 64; // positions of a page, numbers of a group of codes
const int F32 = 0, F16 = 1, I8 = 2, I4 = 3; // types of numbers in pages
const int HALF = CODED / 2, PACKED = HALF + 4; // of I4: bytes of a group of codes, and of these with steps and lows

layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Layer {
  Floats dst, q, k, v, qNorm, kNorm;
  Floats rotation;        // [rows][2][pairs]: cosines and sines
  Floats floats;          // [rows][heads][key+tail]: queries, normed and rotated; unless pages are of I8
  Bytes codes;            // the same of I8, in groups
  Floats scales;          // [rows][heads][groups]
  int heads, kvHeads;
  int key, tail, value;   // numbers of a key in its rows of a page, in a latent row's second ones, of a value
  int head;               // numbers from one head's query to the next
  int kind, page;         // type of numbers, and first byte of a page that is the layer's
  int part0, part1;       // bytes of a head's keys in a page, and of the next part
  int latent, gate;
  int window, ahead;      // positions that a row sees up to its own, 0: all, and from its own on
  int pairs, interleaved; // of rotation
  int queries;            // rows of queries, 0 to append only
  int dstStride, qStride, kStride, vStride;
  float eps, scale;
};

int keyGroups(Layer a) { return (a.key + CODED - 1) / CODED; }
bool isCoded(Layer a) { return a.kind == I8 || a.kind == I4; }
int groupsOf(Layer a) { return keyGroups(a) + (a.tail + CODED - 1) / CODED; }

// rowsOf are a head's part of a page: its keys (part 0), or its values or second parts (part 1).
Bytes rowsOf(Layer a, uint64_t page, int which, int kv) {
  return Bytes(page + uint64_t(a.page) + (which == 1 ? uint64_t(a.kvHeads) * uint64_t(a.part0) : 0ul) + uint64_t(kv) * uint64_t(which == 1 ? a.part1 : a.part0));
}

int signed8(uint x) { return int(x << 24) >> 24; }

// half_ is the number of a half, whose multiple of 2^-24 it is.
float half_(uint h) {
  uint b = (h & 0x7fffu) << 13, r = b + ((h & 0x7c00u) == 0x7c00u ? 0x70000000u : 0x38000000u);
  if ((h & 0x7c00u) == 0u) r = floatBitsToUint(mulPlain(float(h & 1023u), 5.9604644775390625e-8));
  return uintBitsToFloat(r | (h & 0x8000u) << 16);
}
