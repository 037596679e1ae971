// Package hub fetches models from the Hugging Face hub, or a compatible server, and keeps
// them in the cache folder that all tools of that hub share.
//
// It knows the hub's API, the layout of the cache and which files of a repository are
// worth fetching, but not their contents: other packages say whether a model can be run.
// It reads no environment: cache folder, hub and token are
// options. Names, sizes and bytes from the network are untrusted: names stay
// inside the cache, no file grows beyond its announced size, and a file enters
// the cache only if its hash is the announced one.
//
// The cache of a repository:
//
//	models--ORG--NAME/refs/main                 the commit that a branch or tag stood for
//	models--ORG--NAME/blobs/HASH                contents, by SHA-256 or by git's SHA-1
//	models--ORG--NAME/blobs/HASH.incomplete     a blob of which only a prefix has arrived
//	models--ORG--NAME/snapshots/COMMIT/PATH     links into blobs
//	.locks/models--ORG--NAME/HASH.lock          held while a blob is on its way
package hub
