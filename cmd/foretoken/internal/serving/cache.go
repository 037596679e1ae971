package serving

import (
	"cmp"
	"context"
	"os"
	"strings"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/prefix/s3"
	"github.com/foretoken/foretoken/internal/private"
)

// tiers splits --prefix-cache-dir into folders and buckets.
func (f *serveFlags) tiers() (folders, buckets []string) {
	for _, x := range f.cacheDirs {
		if strings.HasPrefix(x, s3.Scheme) {
			buckets = append(buckets, x)
		} else {
			folders = append(folders, x)
		}
	}
	return folders, buckets
}

// validateCache refuses flags of the prefix cache that make no sense together.
func (f *serveFlags) validateCache() error {
	folders, buckets := f.tiers()
	switch {
	case len(folders) > 1 || len(buckets) > 1:
		return flags.Usagef("--prefix-cache-dir: %s: want at most one folder and one bucket", strings.Join(f.cacheDirs, ", "))
	case f.cacheDisk.Given && len(folders) == 0:
		return flags.Usagef("--prefix-cache-disk needs --prefix-cache-dir with a folder")
	case f.cacheUses.Given && len(buckets) == 0:
		return flags.Usagef("--prefix-cache-uses needs --prefix-cache-dir s3://BUCKET/PREFIX")
	}
	for _, x := range buckets {
		if _, _, err := s3.Parse(x); err != nil {
			return flags.Usagef("--prefix-cache-dir: %v", err)
		}
	}
	for _, x := range folders {
		if strings.Contains(x, "://") {
			return flags.Usagef("--prefix-cache-dir %s: want a folder or s3://BUCKET/PREFIX", x)
		}
	}
	return nil
}

// setPrefixCache sets where prefixes are kept. How to reach a bucket is in the variables that all
// programs read: keys on a command line would be seen by all users of the machine.
func (f *serveFlags) setPrefixCache(o *foretoken.Options) {
	o.PrefixCache = foretoken.PrefixCache{Off: f.noCache, MaxDisk: f.cacheDisk.Or(0)}
	folders, buckets := f.tiers()
	if len(folders) > 0 {
		o.PrefixCache.Dir = folders[0]
	}
	if len(buckets) > 0 {
		reach := s3.Options{
			Endpoint:  cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL")),
			Region:    cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
			AccessKey: os.Getenv("AWS_ACCESS_KEY_ID"), SecretKey: os.Getenv("AWS_SECRET_ACCESS_KEY"), SessionToken: os.Getenv("AWS_SESSION_TOKEN"),
			CredentialsFile: os.Getenv("AWS_SHARED_CREDENTIALS_FILE"), Profile: os.Getenv("AWS_PROFILE"),
		}
		private.SetShared(o, private.Shared{Uses: f.cacheUses.Or(0), Open: func(ctx context.Context) (private.Store, error) {
			return s3.Open(ctx, buckets[0], reach)
		}})
	}
}
