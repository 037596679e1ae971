// Instructions that Go's assembler does not know, by their bytes. Registers are numbers:
// t, c, a, b tiles; base AX 0, CX 1, DX 2, BX 3, SI 6, DI 7, R8 8 and so on; index one of the
// first eight.

// LDTILECFG_DX loads the shapes of the tiles from (DX).
#define LDTILECFG_DX BYTE $0xc4; BYTE $0xe2; BYTE $0x78; BYTE $0x49; BYTE $0x02

// TILERELEASE gives all tiles up.
#define TILERELEASE BYTE $0xc4; BYTE $0xe2; BYTE $0x78; BYTE $0x49; BYTE $0xc0

// TILEZERO clears tile t.
#define TILEZERO(t) BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $(0xc0|((t)<<3))

// TILELOADD loads tile t from displacement(base), its rows index bytes apart.
#define TILELOADD(t, displacement, base, index) BYTE $0xc4; BYTE $(0xe2^(((base)>>3)<<5)); BYTE $0x7b; BYTE $0x4b; BYTE $(0x84|((t)<<3)); BYTE $(((index)<<3)|((base)&7)); LONG $displacement

// TILELOADDT1 is the same, past the first cache.
#define TILELOADDT1(t, displacement, base, index) BYTE $0xc4; BYTE $(0xe2^(((base)>>3)<<5)); BYTE $0x79; BYTE $0x4b; BYTE $(0x84|((t)<<3)); BYTE $(((index)<<3)|((base)&7)); LONG $displacement

// TILESTORED stores tile t to displacement(base), its rows index bytes apart.
#define TILESTORED(t, displacement, base, index) BYTE $0xc4; BYTE $(0xe2^(((base)>>3)<<5)); BYTE $0x7a; BYTE $0x4b; BYTE $(0x84|((t)<<3)); BYTE $(((index)<<3)|((base)&7)); LONG $displacement

// TDPBSUD adds to c the products of signed bytes of a and unsigned bytes of b.
#define TDPBSUD(c, a, b) BYTE $0xc4; BYTE $0xe2; BYTE $(((15^(b))<<3)|2); BYTE $0x5e; BYTE $(0xc0|((c)<<3)|(a))

// TDPBUSD adds to c the products of unsigned bytes of a and signed bytes of b.
#define TDPBUSD(c, a, b) BYTE $0xc4; BYTE $0xe2; BYTE $(((15^(b))<<3)|1); BYTE $0x5e; BYTE $(0xc0|((c)<<3)|(a))

// TDPBSSD adds to c the products of signed bytes of a and signed bytes of b.
#define TDPBSSD(c, a, b) BYTE $0xc4; BYTE $0xe2; BYTE $(((15^(b))<<3)|3); BYTE $0x5e; BYTE $(0xc0|((c)<<3)|(a))

// DPBUSD adds to c the products of unsigned bytes of a and signed bytes of b, four in each lane of 32 bits; DPWSSD those of
// words, two in each. They are VPDPBUSD and VPDPWSSD with vectors of 256 bits in the encoding of AVX-VNNI, for which
// Go's assembler has only that of AVX-512. Tests with the tag evex take that one, in order to run where AVX-VNNI does not exist.
#ifdef const_evex
#define DPBUSD(b, a, c) BYTE $0x62; BYTE $(0xf2^(((c)>>3)<<7)^(((b)>>3)<<5)); BYTE $(((15^(a))<<3)|5); BYTE $0x28; BYTE $0x50; BYTE $(0xc0|(((c)&7)<<3)|((b)&7))
#define DPWSSD(b, a, c) BYTE $0x62; BYTE $(0xf2^(((c)>>3)<<7)^(((b)>>3)<<5)); BYTE $(((15^(a))<<3)|5); BYTE $0x28; BYTE $0x52; BYTE $(0xc0|(((c)&7)<<3)|((b)&7))
#else
#define DPBUSD(b, a, c) BYTE $0xc4; BYTE $(0xe2^(((c)>>3)<<7)^(((b)>>3)<<5)); BYTE $(((15^(a))<<3)|5); BYTE $0x50; BYTE $(0xc0|(((c)&7)<<3)|((b)&7))
#define DPWSSD(b, a, c) BYTE $0xc4; BYTE $(0xe2^(((c)>>3)<<7)^(((b)>>3)<<5)); BYTE $(((15^(a))<<3)|5); BYTE $0x52; BYTE $(0xc0|(((c)&7)<<3)|((b)&7))
#endif
