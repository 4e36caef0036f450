// Command aurea is the whole of Aurea: `aurea up` starts everything on this
// machine, the other commands start one part or ask the manager.
package main

import (
	"os"

	"github.com/aurea-dev/aurea/internal/app"
	"github.com/aurea-dev/aurea/internal/cli"
)

func main() {
	os.Exit(cli.Main(app.Program(), os.Args[1:], cli.StandardStreams()))
}
