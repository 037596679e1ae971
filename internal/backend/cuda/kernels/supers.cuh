// Names of the kernels for superblocks. super.go selects the shapes.
#pragma once
#include "super.cuh"
#include "superpanel.cuh"
#include "superrow.cuh"

// Kernel relay_FORMAT_STRIPS: small-M GEMM of up to 8 rows for each of STRIPS with superblocks on int8 tensor cores, split
//   over K as relay.
// Layout: superblocks of 16 outputs and 256 columns: see super.cuh. Rows as int8 codes with a scale and eight group sums per
//   superblock.
// Grid: as in relay.
// Sums: exact integers within a superblock, then one chain over superblocks in ascending order, one fused multiply-add each
//   (integerTiles of the CPU).
//
// Kernel one_FORMAT: GEMV of one row with superblocks without tensor cores (dp4a), fused with RMSNorm and quantization before
//   and with SwiGLU behind it where they are asked for.
// Layout: as in relay_FORMAT; the row as float32 or codes.
// Grid: as in relay.
// Sums: exact integers within a superblock, then one chain over superblocks in ascending order, one fused multiply-add each
//   (integerTiles of the CPU).
//
// Kernel panel_FORMAT: small-M GEMM of 17 to 32 rows, and of the rows of experts, with superblocks on int8 tensor cores.
// Layout: as in relay_FORMAT.
// Grid: one block for each panel of tiles (with experts for each job), a warp for each tile and 16 rows.
// Sums: exact integers within a superblock, then one chain over superblocks in ascending order, one fused multiply-add each
//   (integerTiles of the CPU).
//
// Kernel many_FORMAT: GEMM for prompts with superblocks on int8 tensor cores.
// Layout: as in relay_FORMAT.
// Grid: x: blocks of 64 rows, y: 4 tiles of 16 outputs; 4 warps.
// Sums: exact integers within a superblock, then one chain over superblocks in ascending order, one fused multiply-add each
//   (integerTiles of the CPU).
#define RELAY_SUPER(NAME, FORM, NB, S, BLOCKS)                                                  \
  extern "C" __global__ void __launch_bounds__(256, BLOCKS)                                     \
      NAME(const __grid_constant__ Product p, const __grid_constant__ Parts parts, int shift) { \
    relaySuper<FORM, NB, S>(p, parts, shift);                                                   \
  }
#define ONE_SUPER(NAME, FORM, S)                                                                                               \
  extern "C" __global__ void __launch_bounds__(256, 2)                                                                         \
      NAME(const __grid_constant__ Product p, const __grid_constant__ Parts parts, int shift, const __grid_constant__ SuperRow row, const __grid_constant__ SuperGates gates) { \
    oneSuper<FORM, S>(p, parts, shift, row, gates);                                                                       \
  }
#define PANEL_SUPER(NAME, FORM)                                                                \
  extern "C" __global__ void __launch_bounds__(640, 1)                                        \
      NAME(const __grid_constant__ Product p, const __grid_constant__ Parts parts, int size) { \
    panelSuper<FORM, 4>(p, parts, size);                                                      \
  }
#define MANY_SUPER(NAME, FORM, BLOCKS)                                                                    \
  extern "C" __global__ void __launch_bounds__(128, BLOCKS) NAME(const __grid_constant__ Product p) { \
    manySuper<FORM, 2, 2, 4, 2>(p);                                                                        \
  }
#define SUPER(NAME, FORM, S, WIDE, BLOCKS) \
  RELAY_SUPER(relay_##NAME##_1, FORM, 1, S, 2) \
  RELAY_SUPER(relay_##NAME##_2, FORM, 2, WIDE, 2) \
  ONE_SUPER(one_##NAME, FORM, S) \
  PANEL_SUPER(panel_##NAME, FORM) \
  MANY_SUPER(many_##NAME, FORM, BLOCKS)
