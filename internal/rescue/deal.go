package rescue

import (
	"runtime"
	"sync"
)

// Deal splits [0, n) among at most as many goroutines as there are processors and returns the first
// error. Each gets at least least numbers, in ranges whose borders are multiples of step.
func Deal(n, step, least int, do func(from, to int) error) error {
	steps := (n + step - 1) / step
	threads := max(1, min(runtime.GOMAXPROCS(0), n/max(least, step)))
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for i := range threads {
		wg.Go(func() {
			errs[i] = Do(func() error { return do(i*steps/threads*step, min((i+1)*steps/threads*step, n)) })
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
