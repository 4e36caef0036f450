// Command pack compresses binaries for package embedded: for each it writes
// NAME.zst and NAME.sha256, the digest of what was compressed.
//
//	go run ./internal/driver/gvisor/embedded/pack -o DIR FILE...
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

func main() {
	out := flag.String("o", ".", "folder to write to")
	flag.Parse()
	for _, path := range flag.Args() {
		if err := pack(*out, path); err != nil {
			fmt.Fprintln(os.Stderr, "pack:", err)
			os.Exit(1)
		}
	}
}

func pack(out, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	name := filepath.Join(out, filepath.Base(path))
	if err := os.WriteFile(name+".zst", w.EncodeAll(content, nil), 0o644); err != nil {
		return err
	}
	digest := sha256.Sum256(content)
	return os.WriteFile(name+".sha256", []byte(hex.EncodeToString(digest[:])+"\n"), 0o644)
}
