package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
)

// Keys are the secrets that clients must have. Only their hashes are kept.
type Keys struct{ sums [][sha256.Size]byte }

// NewKeys returns the set of the keys; there must be at least one, and none may be empty.
func NewKeys(list ...string) (*Keys, error) {
	k := &Keys{}
	for _, key := range list {
		if key == "" {
			return nil, errors.New("server: an API key is empty")
		}
		k.sums = append(k.sums, sha256.Sum256([]byte(key)))
	}
	if len(k.sums) == 0 {
		return nil, errors.New("server: no API key is given")
	}
	return k, nil
}

// find looks up the key of a request. name may be logged; tenant is unique to the key and must
// not be. The time reveals nothing about the keys: all hashes are compared.
func (k *Keys) find(r *http.Request) (name, tenant string, ok bool) {
	sum := sha256.Sum256([]byte(presented(r)))
	for _, s := range k.sums {
		if subtle.ConstantTimeCompare(s[:], sum[:]) == 1 {
			ok = true
		}
	}
	return hex.EncodeToString(sum[:4]), hex.EncodeToString(sum[:]), ok
}

// presented is the key of a request, as clients of either protocol send it.
func presented(r *http.Request) string {
	if key := r.Header.Get("X-Api-Key"); key != "" {
		return key
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(key)
}
