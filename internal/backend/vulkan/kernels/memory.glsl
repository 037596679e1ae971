// Memory by addresses, and the call block: see package gpu, which writes it.
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer Bytes { uint8_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer Halves { uint16_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Floats { float v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Ints { int v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Uints { uint v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Quads { uvec4 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Fours { vec4 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Twos { uvec2 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Addresses { uint64_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Pairs { vec2 v[]; };

struct Seq { int first, n, pos, drafts, accepted, pages, deltas, unused; };
struct Recurrent {
  Floats state, tail, keys, deltas, decays;
  int stateStride, tailStride, keysStride, deltasStride, decaysStride, unused;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Seqs { Seq v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Recurrents { Recurrent v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Call {
  int rows, seqs, wants, onlys;
  Ints ids, want, only;
  Seqs seq;
  Ints rowSeq;    // -1: a row of no sequence
  Ints positions; // [rows][3]
  Addresses page; // of all sequences
  Recurrents delta;
};

// none reports whether an address is null.
#define none(x) (uint64_t(x) == 0ul)

// rounded is a number as an integer, nearest with ties to even; its magnitude is below 2^22.
int rounded(float x) { return floatBitsToInt(add(x, 12582912.0)) - 0x4b400000; }
