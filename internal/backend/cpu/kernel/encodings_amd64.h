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
