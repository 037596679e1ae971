//go:build !long

package qwen35

const long = false
