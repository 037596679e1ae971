package generate

import (
	"context"
	"fmt"
)

type tenantKey struct{}

// WithTenant returns a context for requests of a tenant: whoever has the same API key. What is
// kept of its requests is for requests of the same tenant. name is a secret of the process.
func WithTenant(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, tenantKey{}, name)
}

// Tenant is whose request it is; "": there are no tenants.
func Tenant(ctx context.Context) string {
	name, _ := ctx.Value(tenantKey{}).(string)
	return name
}

// salt is what a request's beginnings are kept under: its tenant's, and of those its own. Two
// tenants with the same salt of their own have different ones.
func (h *Service) salt(ctx context.Context, a *Request) string {
	tenant := Tenant(ctx)
	if h.SharePrefixes {
		tenant = ""
	}
	if tenant == "" && a.CacheSalt == "" {
		return ""
	}
	return fmt.Sprintf("%d %s %s", len(tenant), tenant, a.CacheSalt)
}
