// Products with integers of 4 and 8 bits and scales of float32: what GGUF's blocks become.
#include "many.cuh"
#include "relay.cuh"

RELAY(relay_4_32_1, 4, 32, WIDE, 1, 8, 2, 2)
RELAY(relay_4_32_4, 4, 32, WIDE, 4, 4, 2, 1)
MANY(many_4_32_4, 4, 32, WIDE, 1, 4, 6)
RELAY(relay_8_32_1, 8, 32, WIDE, 1, 8, 2, 2)
RELAY(relay_8_32_4, 8, 32, WIDE, 4, 4, 2, 1)
MANY(many_8_32_4, 8, 32, WIDE, 1, 4, 6)
RELAY(relay_4_64_1, 4, 64, WIDE, 1, 8, 2, 2)
RELAY(relay_4_64_4, 4, 64, WIDE, 4, 4, 2, 1)
MANY(many_4_64_4, 4, 64, WIDE, 1, 4, 6)
RELAY(relay_8_64_1, 8, 64, WIDE, 1, 4, 2, 2)
RELAY(relay_8_64_4, 8, 64, WIDE, 4, 2, 2, 1)
MANY(many_8_64_4, 8, 64, WIDE, 1, 4, 6)
