package generate

import (
	"context"
	"fmt"
)

type tenantKey struct{}

// WithTenant returns a context for requests of a tenant: all clients with one API key. Cached
// prefixes and stored responses are the tenant's own. name is a secret of the process.
func WithTenant(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, tenantKey{}, name)
}

// Tenant is the tenant of a request; "": there are no tenants.
func Tenant(ctx context.Context) string {
	name, _ := ctx.Value(tenantKey{}).(string)
	return name
}

type flowKey struct{}

// WithFlow returns a context for requests of a client: see foretoken.Request.Flow.
func WithFlow(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, flowKey{}, name)
}

// flow is the flow of a request; "": that of all lines of batches.
func flow(ctx context.Context) string {
	name, _ := ctx.Value(flowKey{}).(string)
	return name
}

type offlineKey struct{}

// Offline returns a context for requests whose answer nobody waits for. They are served after others
// if priority is negative.
func Offline(ctx context.Context, priority int) context.Context {
	return context.WithValue(ctx, offlineKey{}, priority)
}

func offline(ctx context.Context) (priority int, ok bool) {
	priority, ok = ctx.Value(offlineKey{}).(int)
	return priority, ok
}

type promptedKey struct{}

// WithPrompted returns a context for requests that call f when they have processed their prompt: what
// they have in common with others is in the prefix cache then.
func WithPrompted(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, promptedKey{}, f)
}

func prompted(ctx context.Context) func() {
	f, _ := ctx.Value(promptedKey{}).(func())
	return f
}

// salt is the salt of a request's prefixes in the cache, made of its tenant and its own CacheSalt:
// requests of two tenants with the same CacheSalt have different ones.
func (s *Service) salt(ctx context.Context, r *Request) string {
	tenant := Tenant(ctx)
	if s.SharePrefixes {
		tenant = ""
	}
	if tenant == "" && r.CacheSalt == "" {
		return ""
	}
	return fmt.Sprintf("%d %s %s", len(tenant), tenant, r.CacheSalt)
}
