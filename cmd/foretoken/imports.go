package main

// The model families this program knows. Each registers itself; one line per family.
import (
	_ "github.com/foretoken/foretoken/internal/model/qwen35"
)
