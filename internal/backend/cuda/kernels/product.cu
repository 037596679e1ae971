// Products with integers of 4 and 8 bits in groups of 64, the usual format. matmul.go selects the shapes.
#include "relay.cuh"
#include "many.cuh"
#include "panel.cuh"

RELAY(relay_4_64_1, 4, 64, BRIEF, 1, 8, 2, 2)
RELAY(relay_4_64_2, 4, 64, BRIEF, 2, 4, 2, 2)
RELAY(relay_4_64_4, 4, 64, BRIEF, 4, 4, 4, 1)
RELAY(relay_8_64_1, 8, 64, BRIEF, 1, 4, 2, 2)
RELAY(relay_8_64_2, 8, 64, BRIEF, 2, 2, 4, 2)
RELAY(relay_8_64_4, 8, 64, BRIEF, 4, 2, 2, 2)
PANEL(panel_4_64_1, 4, 64, BRIEF, 1, 1, 8, 3, 14)
PANEL(panel_4_64_2, 4, 64, BRIEF, 2, 1, 8, 2, 18)
PANEL(panel_4_64_2_narrow, 4, 64, BRIEF, 1, 2, 8, 4, 2)
PANEL(panel_4_64_3, 4, 64, BRIEF, 3, 1, 8, 2, 18)
PANEL(panel_4_64_3_narrow, 4, 64, BRIEF, 1, 3, 8, 4, 2)
PANEL(panel_4_64_4, 4, 64, BRIEF, 4, 1, 8, 2, 12)
PANEL(panel_4_64_4_wide, 4, 64, BRIEF, 4, 1, 4, 3, 18)
PANEL(panel_4_64_4_narrow, 4, 64, BRIEF, 1, 4, 8, 2, 2)
MANY(many_4_64_2, 4, 64, BRIEF, 2, 2, 4)
MANY(many_4_64_4, 4, 64, BRIEF, 1, 4, 6)
MANY(many_4_64_8, 4, 64, BRIEF, 1, 8, 4)
MANY(many_8_64_2, 8, 64, BRIEF, 2, 2, 4)
MANY(many_8_64_4, 8, 64, BRIEF, 1, 4, 6)
