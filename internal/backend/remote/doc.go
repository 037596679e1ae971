// Package remote is a device on another machine, a node: the leader has a backend.Backend whose operations a Server on the
// node computes with a device of its own, with the same bits. What crosses are numbers of memory and weights, views of them and
// lists; never addresses. Connections are authenticated by others: see package link.
//
// # Protocol
//
// A leader has two connections to a node. One carries frames: a length, a kind, a number, and little-endian fields. The
// leader chooses the numbers of memory, weights, sequences and recordings, so that nothing waits for an answer but the calls
// of Backend that read, and Load. Errors of what is queued come with the next answer. The other connection carries a ping
// each second, which is answered however long the device computes and however much is being sent.
//
// A sequence is a handle: the node has its pages and recurrent states, which the leader sends again when they have changed, and a pass
// names it with its counts. A pass whose shape is new carries its operations, once. The node checks them, records them, and computes
// later passes of the shape from their lists, which are checked each time. So a round is one frame, and a rollback is Seq.Accepted in it.
//
// Load names matrices by SHA-256 digests of their format, shape and bytes. A node uses its own copy if it has one, and the
// leader sends the others, whose digests the node compares.
//
// # Trust
//
// A node that lets a leader in does not trust it, nor the leader the node. Lengths and numbers are bounded, memory is within the
// budget that the node grants when the leader comes, views are within their memory, shapes and lists fit their operations. What does
// not ends the session with an error, not the process. A node serves one leader at a time and tells others so. Both ends
// must have the same protocol and the same arithmetic.
//
// # Failures
//
// An end that gives no sign of life for five seconds is gone. The node then frees all that the leader had. The leader's calls fail,
// with an error that names the node, until Restore (see backend.Restorer): that connects again for as long as Options.Wait,
// loads the weights again, and has memory made again, with what the host has written to it and zero otherwise. The states of sequences are
// lost, and their owner computes them again. If the node does not come back the device is lost (see backend.Lost).
package remote
