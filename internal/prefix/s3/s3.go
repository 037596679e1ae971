// Package s3 keeps the files of the prefix cache in a bucket of a server with the S3
// protocol, so that several processes can share them. It knows names and bytes, but neither the contents
// of a file nor whether it is worth fetching.
package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/foretoken/foretoken/internal/prefix/store"
)

// Options say how to reach a server, as the variables of the same names do for other programs. The
// zero value is Amazon's, with the credentials of the machine.
type Options struct {
	Endpoint        string // such as https://s3.example.com; "": Amazon's
	Region          string // "": us-east-1
	AccessKey       string // "": those of the credentials file, then those of the machine
	SecretKey       string
	SessionToken    string
	CredentialsFile string // "": the usual one
	Profile         string // of that file; "": default
}

// Bucket is a store in a bucket. It is safe for concurrent use.
type Bucket struct {
	client    *minio.Client
	transport *http.Transport
	name      string
	prefix    string // of all names, with a slash at its end if there is one
	endpoint  string
	plain     atomic.Bool // the server does not support conditional writes
}

// Scheme is the scheme of a bucket's address.
const Scheme = "s3://"

const (
	amazon      = "https://s3.amazonaws.com"
	dialTime    = 3 * time.Second
	openTime    = 15 * time.Second
	secretBytes = 32
	// Secret is the name of the object that salts are mixed with.
	Secret = ".salt"
)

// Parse splits s3://bucket/prefix.
func Parse(address string) (bucket, prefix string, err error) {
	rest, ok := strings.CutPrefix(address, Scheme)
	if !ok {
		return "", "", fmt.Errorf("%q: want s3://BUCKET/PREFIX", address)
	}
	bucket, prefix, _ = strings.Cut(rest, "/")
	prefix = strings.Trim(prefix, "/")
	if bucket == "" || strings.ContainsAny(bucket, "?#@: \\") || strings.ContainsAny(prefix, "?#\\") || strings.Contains(prefix, "//") {
		return "", "", fmt.Errorf("%q: want s3://BUCKET or s3://BUCKET/PREFIX", address)
	}
	for part := range strings.SplitSeq(prefix, "/") {
		if part == "." || part == ".." {
			return "", "", fmt.Errorf("%q: the prefix must not contain the part %q", address, part)
		}
	}
	return bucket, prefix, nil
}

// Open connects to the bucket of an address such as s3://bucket/prefix, and lists one object of
// it, which reveals errors of bucket, key or network.
func Open(ctx context.Context, address string, o Options) (*Bucket, error) {
	bucket, prefix, err := Parse(address)
	if err != nil {
		return nil, err
	}
	if o.Endpoint == "" {
		o.Endpoint = amazon
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.User != nil {
		return nil, fmt.Errorf("%s: endpoint %q: want http://HOST:PORT or https://HOST", address, o.Endpoint)
	}
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	b := &Bucket{name: bucket, endpoint: o.Endpoint, transport: &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second}).DialContext, TLSHandshakeTimeout: dialTime,
		MaxIdleConnsPerHost: 32, IdleConnTimeout: time.Minute, DisableCompression: true, ForceAttemptHTTP2: true,
	}}
	if prefix != "" {
		b.prefix = prefix + "/"
	}
	b.client, err = minio.New(u.Host, &minio.Options{
		Creds: o.credentials(), Secure: u.Scheme == "https", Region: o.Region, Transport: bounded{b.transport},
		MaxRetries: 1, // the caller decides about retries
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	if _, err := b.List(ctx, "", 1); err != nil {
		b.Close()
		return nil, fmt.Errorf("%s: %w", address, b.explain(err))
	}
	return b, nil
}

// bounded limits the size of answers other than objects, which Get limits.
type bounded struct{ to http.RoundTripper }

// maxAnswer is more than a listing of a thousand names or an error needs.
const maxAnswer = 8 << 20

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.to.RoundTrip(r)
	if err == nil && (r.URL.Query().Has("list-type") || answer.StatusCode >= 300) {
		answer.Body = limited{io.LimitReader(answer.Body, maxAnswer), answer.Body}
	}
	return answer, err
}

type limited struct {
	io.Reader
	io.Closer
}

// credentials are those given, or those of the file, or, if the server is Amazon's, those of
// the machine.
func (o *Options) credentials() *credentials.Credentials {
	if o.AccessKey != "" {
		return credentials.NewStaticV4(o.AccessKey, o.SecretKey, o.SessionToken)
	}
	list := []credentials.Provider{&credentials.FileAWSCredentials{Filename: o.CredentialsFile, Profile: o.Profile}}
	if o.Endpoint == amazon {
		list = append(list, &credentials.IAM{Client: &http.Client{Timeout: dialTime}})
	}
	return credentials.NewChainCredentials(list)
}

// explain adds the remedy to an error of the first request.
func (b *Bucket) explain(err error) error {
	switch r := minio.ToErrorResponse(err); {
	case r.Code == minio.NoSuchBucket:
		return fmt.Errorf("there is no bucket %s at %s: create it, or correct its name", b.name, b.endpoint)
	case r.StatusCode >= 400 && r.StatusCode < 500: // servers have many codes for a key that is wrong
		return fmt.Errorf("%s denies access: %s (%s): check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION, or the credentials file, and the permissions to list, read and write", b.endpoint, strings.TrimSuffix(r.Message, "."), r.Code)
	}
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return fmt.Errorf("%s: correct AWS_ENDPOINT_URL, or add the authority of its certificate to the certificates that the system trusts: %w", b.endpoint, err)
	}
	var n net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) {
		return fmt.Errorf("%s cannot be reached: check AWS_ENDPOINT_URL and the network: %w", b.endpoint, err)
	}
	return err
}

// Close ends idle connections.
func (b *Bucket) Close() { b.transport.CloseIdleConnections() }

// Get implements store.Store.
func (b *Bucket) Get(ctx context.Context, name string, limit int64) ([]byte, error) {
	core := minio.Core{Client: b.client}
	body, info, _, err := core.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, plain(ctx, err)
	}
	defer func() { _ = body.Close() }() // read only
	if info.Size > limit {
		return nil, store.TooLarge(info.Size, limit)
	}
	data := bytes.NewBuffer(make([]byte, 0, max(info.Size, 0)+bytes.MinRead))
	n, err := data.ReadFrom(io.LimitReader(body, limit+1))
	switch {
	case err != nil:
		return nil, plain(ctx, err)
	case n > limit:
		return nil, store.TooLarge(n, limit)
	case info.Size >= 0 && n != info.Size:
		return nil, fmt.Errorf("%s: %d of %d bytes: %w", name, n, info.Size, io.ErrUnexpectedEOF)
	}
	return data.Bytes(), nil
}

// Put implements store.Store: the first writer wins.
func (b *Bucket) Put(ctx context.Context, name string, data []byte, replace bool) error {
	o := minio.PutObjectOptions{ContentType: "application/octet-stream", DisableMultipart: true}
	conditional := !replace && !b.plain.Load()
	if conditional {
		o.SetMatchETagExcept("*")
	}
	_, err := b.client.PutObject(ctx, b.name, b.prefix+name, bytes.NewReader(data), int64(len(data)), o)
	if err == nil {
		return nil
	}
	switch r := minio.ToErrorResponse(err); {
	case r.StatusCode == http.StatusPreconditionFailed || r.StatusCode == http.StatusConflict:
		return nil // it exists, or another process is writing it
	case r.StatusCode == http.StatusNotImplemented && conditional:
		b.plain.Store(true) // the same name has the same contents: nothing is lost
		return b.Put(ctx, name, data, replace)
	}
	return plain(ctx, err)
}

// List implements store.Store, in one request.
func (b *Bucket) List(ctx context.Context, begin string, limit int) (items []store.Item, err error) {
	limit = min(limit, 1000)
	one, cancel := context.WithCancel(ctx)
	defer cancel()
	owner := false
	for x := range b.client.ListObjectsIter(one, b.name, minio.ListObjectsOptions{
		Prefix: b.prefix + begin, Recursive: true, MaxKeys: limit, FetchOwner: &owner,
	}) {
		if x.Err != nil {
			return nil, plain(ctx, x.Err)
		}
		items = append(items, store.Item{Name: strings.TrimPrefix(x.Key, b.prefix), Size: x.Size, Used: x.LastModified})
		if len(items) == limit {
			break
		}
	}
	return items, ctx.Err() // which the library does not return
}

// plain is an error without the library's words where we have our own.
func plain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey { // some servers say 404 of other things too
		return fs.ErrNotExist
	}
	return err
}

// OpenSecret is the secret for salts, the same for all processes that share the bucket. The first
// caller creates it.
func (b *Bucket) OpenSecret(ctx context.Context) (secret [secretBytes]byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	data, err := b.Get(ctx, Secret, secretBytes)
	if errors.Is(err, fs.ErrNotExist) {
		_, _ = rand.Read(secret[:]) // never fails, by its contract
		if err = b.Put(ctx, Secret, secret[:], false); err == nil {
			data, err = b.Get(ctx, Secret, secretBytes) // another process may have been faster
		}
	}
	if err == nil && len(data) != secretBytes {
		err = fmt.Errorf("%d bytes, want %d: remove it; prefixes stored for salts and keys are then lost", len(data), secretBytes)
	}
	if err != nil {
		return secret, fmt.Errorf("%s%s/%s%s: %w", Scheme, b.name, b.prefix, Secret, err)
	}
	return [secretBytes]byte(data), nil
}
