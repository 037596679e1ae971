// Command _gen packs compiled modules into kernels/kernels.spv.gz, and writes hashes of the sources into kernels/kernels.sum. It is
// given the folder of the modules.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	log.SetFlags(0)
	files, err := filepath.Glob(filepath.Join(os.Args[1], "*.spv"))
	if err != nil {
		log.Fatal(err)
	}
	var all bytes.Buffer
	part := func(data []byte) {
		all.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(data))))
		all.Write(data)
	}
	slices.SortFunc(files, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			log.Fatal(err)
		}
		part([]byte(strings.TrimSuffix(filepath.Base(file), ".spv")))
		part(code)
	}
	var packed, sums bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is one
	if _, err := z.Write(all.Bytes()); err != nil {
		log.Fatal(err)
	}
	if err := z.Close(); err != nil {
		log.Fatal(err)
	}
	sources, err := filepath.Glob("*.[cg]*")
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("kernels.spv.gz", packed.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
	for _, source := range append(sources, "kernels.spv.gz") {
		text, err := os.ReadFile(source)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(text), source)
	}
	if err := os.WriteFile("kernels.sum", sums.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}
