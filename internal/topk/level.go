package topk

// Levels is the number of levels of likelihood of a coarse draw: sixteenths of an octave below the most
// likely id of a row. Ids that are 2^43 times less likely have no level.
const Levels = 43 * 16

// LevelWeights are 2^42 times the likelihoods of the first levels relative to level 0, as integers. Those
// of the next octave are half of them, and so on.
var LevelWeights = [16]uint64{
	0x40000000000, 0x3d495f45492, 0x3ab031b9f75, 0x383337bb0aa, 0x35d13f32b5a, 0x3389230547e, 0x3159ca84554, 0x2f4228e7d60,
	0x2d413cccfe7, 0x2b560fba90b, 0x297fb5aa6c5, 0x27bd4c98247, 0x260dfc14637, 0x2470f4dceac, 0x22e57078faa, 0x216ab0d9f31,
}
