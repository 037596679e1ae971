package generate

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"time"
)

// Caller is the context of a request besides its body: on whose behalf and how it runs. The zero value
// is a client of a server without keys.
type Caller struct {
	// Tenant stands for all clients with one API key: cached prefixes and stored responses are the
	// tenant's own. It is a secret of the process; "": there are no tenants.
	Tenant string
	Flow   string // see foretoken.Request.Flow
	Strict bool   // unknown and unsupported fields are errors
	Stats  bool   // the answer is to have stats

	Offline  bool // no client waits for the answer
	Priority int  // added to that of the request; a negative one is served after others
	// Prompted is called when the prompt has been processed: the prefix cache then has the prefixes that
	// the request shares with others. It may be nil.
	Prompted func()
	// Reporter is called when the request has ended: see Report. nil: it is not.
	Reporter func(r *Run, err error)
	// Deterministic makes the response a function of the request. nil: identifiers are random, times are
	// current, and the usage has the tokens that were cached and drafted.
	Deterministic *Deterministic
}

// Deterministic are the values of a response that are otherwise random or depend on time.
type Deterministic struct {
	Key     string // identifiers are hashes of it
	Created time.Time
}

// ID is an identifier with a prefix, for the part of a response at place, such as a choice and a call in
// it. No two parts with the same prefix have the same place. It is random unless the run is Deterministic.
func (r *Run) ID(prefix string, place ...int) string {
	d := r.Request.Caller.Deterministic
	if d == nil {
		return prefix + rand.Text()
	}
	sum := sha256.Sum256(fmt.Append(nil, prefix, place, d.Key))
	return prefix + base32.StdEncoding.EncodeToString(sum[:])[:26] // the form of rand.Text
}

// Report tells the Reporter how a request ended. Protocols call it once for each run, before Run.Close,
// and with every error that they answer with. r is nil if the request was not started; its answers have
// ended unless err says why not. err is the error that the client was sent, or nil.
func (c *Caller) Report(r *Run, err error) {
	if c.Reporter != nil {
		c.Reporter(r, err)
	}
}

// salt is the salt of a request's prefixes in the cache, made of its tenant and its own CacheSalt:
// requests of two tenants with the same CacheSalt have different ones.
func (s *Service) salt(r *Request) string {
	tenant := r.Caller.Tenant
	if s.SharePrefixes {
		tenant = ""
	}
	if tenant == "" && r.CacheSalt == "" {
		return ""
	}
	return fmt.Sprintf("%d %s %s", len(tenant), tenant, r.CacheSalt)
}
