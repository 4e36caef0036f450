//go:build hold

package hold

import (
	_ "github.com/anishathalye/porcupine"
	_ "github.com/creack/pty"
	_ "github.com/danielgtaylor/huma/v2/adapters/humago"
	_ "github.com/danielgtaylor/huma/v2/sse"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/google/uuid"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/knadh/koanf/parsers/yaml"
	_ "github.com/knadh/koanf/providers/env/v2"
	_ "github.com/knadh/koanf/providers/file"
	_ "github.com/knadh/koanf/v2"
	_ "github.com/lmittmann/tint"
	_ "github.com/opencontainers/runtime-spec/specs-go"
	_ "github.com/pressly/goose/v3"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/spf13/cobra"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "gvisor.dev/gvisor/pkg/sentry/control"
	_ "gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	_ "gvisor.dev/gvisor/runsc/config"
	_ "gvisor.dev/gvisor/runsc/container"
	_ "modernc.org/sqlite"
	_ "pgregory.net/rapid"
)
