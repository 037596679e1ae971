// Products with E2M1 codes in groups of 32 with scales of bf16: mxfp4. matmul.go selects the shapes.
#include "relay.cuh"
#include "many.cuh"
#include "panel.cuh"

RELAY(relay_4_64_1, 4, 64, MX, 1, 4, 4, 2)
RELAY(relay_4_64_4, 4, 64, MX, 4, 2, 4, 1)
PANEL(panel_4_64_1, 4, 64, MX, 1, 1, 8, 3, 14)
PANEL(panel_4_64_2, 4, 64, MX, 2, 1, 8, 2, 18)
PANEL(panel_4_64_2_narrow, 4, 64, MX, 1, 2, 8, 4, 2)
PANEL(panel_4_64_3, 4, 64, MX, 3, 1, 8, 2, 18)
PANEL(panel_4_64_3_narrow, 4, 64, MX, 1, 3, 8, 4, 2)
PANEL(panel_4_64_4, 4, 64, MX, 4, 1, 8, 2, 12)
PANEL(panel_4_64_4_narrow, 4, 64, MX, 1, 4, 8, 2, 2)
MANY(many_4_64_2, 4, 64, MX, 2, 2, 4)
MANY(many_4_64_4, 4, 64, MX, 1, 4, 6)
MANY(many_4_64_8, 4, 64, MX, 1, 8, 4)
