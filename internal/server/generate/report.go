package generate

import "context"

// Reporter is told how a request ended. t is nil where no turn was started; its answers have
// ended unless err says why not. err is nil, or what the client was told.
type Reporter func(t *Run, err error)

type reporterKey struct{}

// WithReporter returns a context in which Report tells r.
func WithReporter(ctx context.Context, r Reporter) context.Context {
	return context.WithValue(ctx, reporterKey{}, r)
}

// Report tells whoever keeps the books how a request ended, with ctx the request's context.
// Protocols call it once per request, before Turn.Close, with the turn and the error they
// have; either may be nil. Without a reporter in ctx it does nothing.
func Report(ctx context.Context, t *Run, err error) {
	if r, ok := ctx.Value(reporterKey{}).(Reporter); ok {
		r(t, err)
	}
}
