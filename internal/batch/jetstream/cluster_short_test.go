//go:build !long

package jetstream_test

// clusterLines is how many lines a cluster works on while its nodes are killed.
const clusterLines = 60
