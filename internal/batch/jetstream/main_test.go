package jetstream_test

import (
	"testing"

	"github.com/foretoken/foretoken/internal/batch/jetstream/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m) }
