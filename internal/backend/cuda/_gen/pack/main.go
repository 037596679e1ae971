// Command pack compresses PTX from its standard input to its standard output.
package main

import (
	"io"
	"log"
	"os"

	"github.com/foretoken/foretoken/internal/backend/cuda/ptxpack"
)

func main() {
	log.SetFlags(0)
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	packed, err := ptxpack.Pack(string(text))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := os.Stdout.Write(packed); err != nil {
		log.Fatal(err)
	}
}
