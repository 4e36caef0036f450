package queue_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if underRace {
		// The stories are told one after the other and cannot race; the detector
		// makes the database under them thirty times slower. -rapid.checks still
		// overrides this.
		if err := flag.Set("rapid.checks", "10"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	goleak.VerifyTestMain(m)
}
