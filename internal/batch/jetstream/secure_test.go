package jetstream_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/batch"
	"github.com/foretoken/foretoken/internal/batch/jetstream"
	"github.com/foretoken/foretoken/internal/batch/jetstream/natstest"
)

// A server with TLS and users admits its users, and refuses others with a reason in one line.
func TestSecureServersWantCertificateAndUser(t *testing.T) {
	t.Parallel()
	node, server := natstest.Secure(t)
	s := node.Security
	all := jetstream.Options{Servers: []string{server}, CA: s.CA(), Cert: s.Cert(), Key: s.Key(), Credentials: s.Credentials()}
	c, err := jetstream.Dial(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Queue().Publish(t.Context(), hints(3)); err != nil {
		t.Fatal(err)
	}
	fetch(t, c.Queue(), 3)
	store, err := c.Store(t.Context(), t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		change func(*jetstream.Options)
		wanted string
	}{
		"no CA":          {func(o *jetstream.Options) { o.CA = "" }, "--queue-ca"},
		"no certificate": {func(o *jetstream.Options) { o.Cert, o.Key = "", "" }, "--queue-cert"},
		"no user":        {func(o *jetstream.Options) { o.Credentials = "" }, "--queue-credentials"},
		"a stranger":     {func(o *jetstream.Options) { o.Credentials = s.Strangers() }, "--queue-credentials"},
		"no file":        {func(o *jetstream.Options) { o.Credentials = "none.creds" }, "none.creds"},
		"no TLS": {func(o *jetstream.Options) {
			o.Servers = []string{strings.Replace(server, "tls", "nats", 1)}
			o.Cert, o.Key = "", ""
		}, "--queue-cert"},
	} {
		o := all
		x.change(&o)
		c, err := jetstream.Dial(t.Context(), o)
		if err == nil {
			c.Close()
			t.Errorf("%s: it was let in", name)
			continue
		}
		if !strings.Contains(err.Error(), x.wanted) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%s: %v, want %s", name, err, x.wanted)
		}
	}
	node.Kill(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := store.Get(ctx, "batches/x"); !errors.Is(err, batch.ErrUnreachable) {
		t.Errorf("a server that is gone: %v", err)
	}
}
