package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"time"
)

// entry is a file in an archive.
type entry struct {
	name string
	data []byte
	mode os.FileMode
	time time.Time
}

// tarball writes a compressed tar file.
func tarball(w io.Writer, entries []entry) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, e := range entries {
		head := &tar.Header{Name: e.name, Mode: int64(e.mode), Size: int64(len(e.data)), ModTime: e.time, Format: tar.FormatUSTAR}
		if err := t.WriteHeader(head); err != nil {
			return err
		}
		if _, err := t.Write(e.data); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

// zipped writes a zip file.
func zipped(w io.Writer, entries []entry) error {
	z := zip.NewWriter(w)
	for _, e := range entries {
		head := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: e.time}
		head.SetMode(e.mode)
		f, err := z.CreateHeader(head)
		if err != nil {
			return err
		}
		if _, err := f.Write(e.data); err != nil {
			return err
		}
	}
	return z.Close()
}
