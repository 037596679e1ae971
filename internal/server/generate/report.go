package generate

import "context"

// Reporter is told how a request ended. r is nil if it was not started; its answers have ended
// unless err says why not. err is the error that the client was sent, or nil.
type Reporter func(r *Run, err error)

type reporterKey struct{}

// WithReporter returns a context in which Report calls f.
func WithReporter(ctx context.Context, f Reporter) context.Context {
	return context.WithValue(ctx, reporterKey{}, f)
}

// Report tells the Reporter of ctx, the request's context, how a request ended. Protocols call it
// once for each run, before Run.Close, and with every error that they answer with; err may be nil.
// Without a Reporter it does nothing.
func Report(ctx context.Context, r *Run, err error) {
	if f, ok := ctx.Value(reporterKey{}).(Reporter); ok {
		f(r, err)
	}
}
