// Products with signed integers of 4 and 8 bits in pairs of groups of 32, a half for each: GGUF's Q4_0, Q5_0 and
// Q8_0. matmul.go selects the shapes.
#include "relay.cuh"
#include "many.cuh"
#include "panel.cuh"

RELAY(relay_4_64_1, 4, 64, SYMMETRIC, 1, 4, 4, 2)
RELAY(relay_4_64_4, 4, 64, SYMMETRIC, 4, 4, 4, 1)
RELAY(relay_8_64_1, 8, 64, SYMMETRIC, 1, 4, 2, 2)
RELAY(relay_8_64_2, 8, 64, SYMMETRIC, 2, 2, 4, 2)
RELAY(relay_8_64_4, 8, 64, SYMMETRIC, 4, 2, 2, 2)
PANEL(panel_4_64_1, 4, 64, SYMMETRIC, 1, 1, 8, 3, 14)
PANEL(panel_4_64_2, 4, 64, SYMMETRIC, 2, 1, 8, 2, 18)
PANEL(panel_4_64_2_narrow, 4, 64, SYMMETRIC, 1, 2, 8, 4, 2)
PANEL(panel_4_64_3, 4, 64, SYMMETRIC, 3, 1, 8, 2, 18)
PANEL(panel_4_64_3_narrow, 4, 64, SYMMETRIC, 1, 3, 8, 4, 2)
PANEL(panel_4_64_4, 4, 64, SYMMETRIC, 4, 1, 8, 2, 12)
PANEL(panel_4_64_4_wide, 4, 64, SYMMETRIC, 4, 1, 4, 3, 18)
PANEL(panel_4_64_4_narrow, 4, 64, SYMMETRIC, 1, 4, 8, 2, 2)
PANEL(panel_8_64_2, 8, 64, SYMMETRIC, 2, 1, 4, 2, 18)
PANEL(panel_8_64_3, 8, 64, SYMMETRIC, 3, 1, 4, 2, 18)
PANEL(panel_8_64_4, 8, 64, SYMMETRIC, 4, 1, 4, 2, 14)
MANY(many_4_64_2, 4, 64, SYMMETRIC, 2, 2, 4)
MANY(many_4_64_4, 4, 64, SYMMETRIC, 1, 4, 6)
MANY(many_4_64_8, 4, 64, SYMMETRIC, 1, 8, 6)
MANY(many_8_64_2, 8, 64, SYMMETRIC, 2, 2, 4)
MANY(many_8_64_4, 8, 64, SYMMETRIC, 1, 4, 6)
MANY(many_8_64_8, 8, 64, SYMMETRIC, 1, 8, 6)
