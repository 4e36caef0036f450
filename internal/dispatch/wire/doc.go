// Package wire carries the agreement of package dispatch over HTTP. The
// manager mounts Handler; the worker dials with Client. It decides nothing:
// what a call means is the business of the two ends.
//
// # Calls
//
// Each call is a POST of JSON to /wire/v1/ and its name: register, lease,
// extend, report, finish, leave. Unknown fields are tolerated, so that two
// releases can talk; what is out of dispatch's bounds is refused with the name
// of the field. A blob is a PUT of raw bytes to /wire/v1/blobs/{sha256}. An
// error is problem JSON (RFC 9457) with the fault's kind, code and field, and
// the other end makes the same fault of it.
//
// The payload of a lease travels as base64: its digest is part of the
// evidence, so its bytes must arrive as they were stored, and a JSON value
// inside JSON would be rewritten on the way.
//
// # Commands
//
// The worker opens the command stream with GET /wire/v1/commands and an
// upgrade to aurea-commands/1. From then on the connection speaks HTTP/2 the
// other way round: the manager is the client and the worker the server.
// Commands are ordinary requests (POST /cancel), so they are multiplexed,
// cancelled and flow-controlled one by one without a protocol of our own. A run
// (POST /run) is answered with frames: output while it comes, at last the result
// or a problem; the end of the request stops a run that is not to be kept.
// Sandboxes that are kept are spoken of in the same way: plain calls are JSON
// (POST /sandbox/open, /exec/start and others), what a command prints and files
// that come out are frames, and files that go in follow a line that says where
// to. A worker that knows several managers opens a second stream to each, with
// GET /wire/v1/beside, over which only sandboxes are spoken of. Both ends ping,
// and a dead peer is noticed within Quiet + Dead. When the manager ends the stream
// it says why with POST /end.
//
// Beside the stream the worker opens a few lines, with GET /wire/v1/line: turned
// round in the same way, they carry HTTP/1.1, one call at a time, for the calls
// that are often over in a moment. They end with the stream.
//
// # Access
//
// Who calls is found out by the middleware in front, and is in the context; a
// caller that may not host is refused here. The middleware must leave the
// connection's powers reachable (http.ResponseController): the stream hijacks
// it, and long polls and blobs move its deadlines.
package wire

import "time"

// The routes.
const (
	prefix       = "/wire/v1/"
	commandsPath = prefix + "commands"
	besidePath   = prefix + "beside"
	linePath     = prefix + "line"
	blobsPath    = prefix + "blobs/"
	protocol     = "aurea-commands/1"
)

// A stream that was silent for Quiet is pinged; one whose ping is not answered
// within Dead is closed. A blob that makes no progress for Dead is given up.
const (
	Quiet = 5 * time.Second
	Dead  = 15 * time.Second
)
