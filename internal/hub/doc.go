// Package hub fetches models from the Hugging Face hub, or anything that answers as it
// does, and keeps them in the cache folder that all tools of that hub share.
//
// It knows the hub's API, the layout of the cache and which files of a repository are
// worth fetching. It does not know what is in them: whether a model can be run is for
// others to say. It reads no environment: where the cache is, which hub and what token are
// options. Names, sizes and bytes that come over the network are untrusted: names stay
// inside the cache, nothing grows beyond its announced size, and a file gets its place in
// the cache only when its hash is the one that was announced.
//
// The cache of a repository:
//
//	models--ORG--NAME/refs/main                 the commit that a branch or tag stood for
//	models--ORG--NAME/blobs/HASH                contents, by SHA-256 or by git's SHA-1
//	models--ORG--NAME/blobs/HASH.incomplete     a blob of which only a prefix has arrived
//	models--ORG--NAME/snapshots/COMMIT/PATH     links into blobs
//	.locks/models--ORG--NAME/HASH.lock          held while a blob is on its way
package hub
