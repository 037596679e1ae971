// What the kernels for superblocks are called. super.go knows the shapes.
#pragma once
#include "super.cuh"
#include "superpanel.cuh"
#include "superrow.cuh"

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
