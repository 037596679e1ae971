// Products with E2M1 codes in groups of 16 with scales of E4M3: nvfp4. matmul.go selects the shapes.
#include "relay.cuh"
#include "many.cuh"
#include "panel.cuh"

RELAY(relay_4_64_1, 4, 64, NV, 1, 2, 4, 2)
RELAY(relay_4_64_4, 4, 64, NV, 4, 1, 4, 1)
PANEL(panel_4_64_1, 4, 64, NV, 1, 1, 4, 6, 14)
PANEL(panel_4_64_2, 4, 64, NV, 2, 1, 4, 4, 18)
PANEL(panel_4_64_2_narrow, 4, 64, NV, 1, 2, 4, 4, 2)
PANEL(panel_4_64_3, 4, 64, NV, 3, 1, 4, 4, 18)
PANEL(panel_4_64_3_narrow, 4, 64, NV, 1, 3, 4, 4, 2)
PANEL(panel_4_64_4, 4, 64, NV, 4, 1, 4, 4, 12)
PANEL(panel_4_64_4_narrow, 4, 64, NV, 1, 4, 4, 2, 2)
MANY(many_4_64_2, 4, 64, NV, 2, 2, 4)
MANY(many_4_64_4, 4, 64, NV, 1, 4, 6)
MANY(many_4_64_8, 4, 64, NV, 1, 8, 4)
