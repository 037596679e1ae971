//go:build !unix

package main

import (
	"testing"
	"time"
)

// stop cannot stop a process on this system.
func (p *program) stop(*testing.T, time.Duration) {}
