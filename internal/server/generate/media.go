package generate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/rescue"
)

// Limits of the files that are fetched for one request.
const (
	maxRemote  = 64       // files
	maxFetches = 4        // at a time
	maxFetched = 64 << 20 // bytes of all
)

// Remote is a file of an image or video that is on another machine.
type Remote struct {
	Param string // the field with its URL
	URL   *url.URL
	To    *[]byte // destination of the bytes
}

// checkRemote refuses URLs before anything is fetched, or a model loaded.
func (s *Service) checkRemote(r *Request) error {
	for i, f := range r.Remote {
		switch {
		case s.Images == nil:
			return NotSupported(f.Param, "this server does not fetch images: send the image as a data: URL, or see foretoken serve --allow-image-urls")
		case i == maxRemote:
			return Invalid(f.Param, "the request has %d images to fetch, at most %d are allowed: send other images as data: URLs", len(r.Remote), maxRemote)
		}
		if err := s.Images.Allows(f.URL); err != nil {
			return NotSupported(f.Param, "%v", err)
		}
	}
	return nil
}

// fetch gets the files of a request that are on other machines, for a model that can see them.
func (s *Service) fetch(ctx context.Context, r *Request, m *foretoken.Model) error {
	if len(r.Remote) == 0 {
		return nil
	}
	if m.Info().Vision == nil {
		return foretoken.ErrNoVision
	}
	return s.fetchAll(ctx, r)
}

// fetchAll gets the files of a request that are on other machines.
func (s *Service) fetchAll(ctx context.Context, r *Request) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(r.Remote))
	places := make(chan struct{}, maxFetches)
	var total atomic.Int64
	var wait sync.WaitGroup
	for i, f := range r.Remote {
		places <- struct{}{}
		wait.Go(func() {
			defer func() { <-places }()
			errs[i] = rescue.Do(func() (err error) {
				*f.To, err = s.Images.Fetch(ctx, f.URL)
				if err == nil && total.Add(int64(len(*f.To))) > maxFetched {
					err = fmt.Errorf("the fetched images of the request have more than %d bytes in total, the maximum", maxFetched)
				}
				return err
			})
			if errs[i] != nil {
				cancel() // the rest is not needed
			}
		})
	}
	wait.Wait()
	for i, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return Invalid(r.Remote[i].Param, "%s", tidy(err))
		}
	}
	return errors.Join(errs...)
}

// CountMedia counts the images and videos of messages.
func CountMedia(list []chat.Message) (n int) {
	for _, m := range list {
		n += len(m.Content.Media())
	}
	return n
}

// locate is Wrap with the field of the image or video that an error is about.
func (r *Request) locate(err error) *Error {
	e := Wrap(err)
	at := 0
	if bad := (*foretoken.MediaError)(nil); errors.As(err, &bad) {
		at = bad.Index
	} else if !errors.Is(err, foretoken.ErrNoVision) {
		return e
	}
	if at < len(r.Media) {
		e.Param = r.Media[at]
	}
	return e
}

// mediaError is the error for an unusable image or video, nil if err is not one.
func mediaError(err error) *Error {
	if errors.Is(err, foretoken.ErrNoVision) {
		return &Error{Status: http.StatusBadRequest, Kind: Unsupported, Param: "messages", Message: tidy(err), Err: err}
	}
	if bad := (*foretoken.MediaError)(nil); errors.As(err, &bad) {
		return &Error{Status: http.StatusBadRequest, Kind: BadRequest, Param: "messages", Message: tidy(err), Err: err}
	}
	return nil
}
