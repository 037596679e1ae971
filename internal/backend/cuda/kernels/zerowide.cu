// Products with integers of 4 and 8 bits that have zero points, and scales of float32.
#include "many.cuh"
#include "relay.cuh"

RELAY(relay_4_32_1, 4, 32, ZEROED_WIDE, 1, 8, 2, 2)
RELAY(relay_4_32_4, 4, 32, ZEROED_WIDE, 4, 4, 2, 1)
MANY(many_4_32_4, 4, 32, ZEROED_WIDE, 1, 4, 6)
RELAY(relay_8_32_1, 8, 32, ZEROED_WIDE, 1, 8, 2, 2)
RELAY(relay_8_32_4, 8, 32, ZEROED_WIDE, 4, 4, 2, 1)
MANY(many_8_32_4, 8, 32, ZEROED_WIDE, 1, 4, 6)
RELAY(relay_4_64_1, 4, 64, ZEROED_WIDE, 1, 8, 2, 2)
RELAY(relay_4_64_4, 4, 64, ZEROED_WIDE, 4, 4, 2, 1)
MANY(many_4_64_4, 4, 64, ZEROED_WIDE, 1, 4, 6)
RELAY(relay_8_64_1, 8, 64, ZEROED_WIDE, 1, 4, 2, 2)
RELAY(relay_8_64_4, 8, 64, ZEROED_WIDE, 4, 2, 2, 1)
MANY(many_8_64_4, 8, 64, ZEROED_WIDE, 1, 4, 6)
RELAY(relay_4_128_1, 4, 128, ZEROED_WIDE, 1, 4, 2, 2)
RELAY(relay_4_128_4, 4, 128, ZEROED_WIDE, 4, 2, 2, 1)
MANY(many_4_128_4, 4, 128, ZEROED_WIDE, 1, 4, 4)
RELAY(relay_8_128_1, 8, 128, ZEROED_WIDE, 1, 2, 2, 2)
RELAY(relay_8_128_4, 8, 128, ZEROED_WIDE, 4, 1, 2, 1)
MANY(many_8_128_4, 8, 128, ZEROED_WIDE, 1, 4, 4)
