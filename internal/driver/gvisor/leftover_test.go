package gvisor_test

import (
	"fmt"
	"testing"

	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// A server that a command has left in the background goes on, however much it
// says about its work, and answers.
func TestServerInTheBackground(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	defer d.Close()
	b := drivertest.Create(t, d, sandbox.Spec{})
	defer drivertest.Destroy(t, d, b)
	// It says 200,000 bytes to each stream for each answer; a pipe holds 65,536.
	const server = `import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        for f in sys.stdout, sys.stderr:
            f.write("x" * 200000); f.flush()
        self.send_response(200); self.end_headers(); self.wfile.write(b"here")
s = http.server.HTTPServer(("127.0.0.1", 8123), H)
open("/workspace/up", "w").close()
s.serve_forever()`
	if got := say(t, b, "python3 -c '"+server+"' & while [ ! -e up ]; do sleep 0.01; done; echo started"); got != "started" {
		t.Fatalf("%q", got)
	}
	const ask = `import urllib.request; print(urllib.request.urlopen("http://127.0.0.1:8123/").read().decode())`
	for range 3 {
		if got := say(t, b, "python3 -c '"+ask+"'"); got != "here" {
			t.Fatalf("%q", got)
		}
	}
}

// With more background writers than the guest reads for, commands go on as ever;
// and when those are gone it reads for others.
func TestManyLeftovers(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	defer d.Close()
	b := drivertest.Create(t, d, sandbox.Spec{})
	defer drivertest.Destroy(t, d, b)
	for i := range 100 {
		if got := say(t, b, fmt.Sprintf("sleep 98765 & echo $! >> all; echo %d", i)); got != fmt.Sprint(i) {
			t.Fatalf("%q", got)
		}
	}
	say(t, b, "kill -9 $(cat all); while kill -0 $(cat all) 2>/dev/null; do sleep 0.01; done")
	for i := 0; ; i++ { // as often as it takes until the guest has seen their end
		say(t, b, fmt.Sprintf("(sleep 0.02; echo late; echo > survived-%d) & echo $! > writer", i))
		if say(t, b, fmt.Sprintf("while kill -0 $(cat writer) 2>/dev/null; do sleep 0.01; done; ls survived-%d 2>/dev/null", i)) != "" {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal("nothing is read any more")
		}
	}
}
