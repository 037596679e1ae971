package hubcache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/hub"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// byCard is the value of --with-head that stands for the base model of the model card.
const byCard = "base_model"

// Limits on reads of an original repository besides the tensors of its head.
const (
	maxCard       = 4 << 20
	maxIndex      = 64 << 20
	maxHeadHeader = 64 << 20
	maxHeadFiles  = 32
)

// headSetting is the flag --with-head.
func headSetting() flags.Setting[string] {
	return flags.Setting[string]{
		Kind:  "REPO",
		Parse: func(text string) (string, error) { return text, nil },
		Check: func(text string) error {
			if text == byCard {
				return nil
			}
			_, _, err := hub.ParseName(text)
			return err
		},
	}
}

// lostHead adds the head that a converter has dropped to a model in the cache.
type lostHead struct {
	c      *console.Console
	client *hub.Client
	l      *hub.Listing // of the model
	from   *hub.Listing // of the original; nil: not asked for
	head   *hub.Composition
	inside string // the folder of the model in the repository
}

// bases are the base models that the card of the model names.
func (h *lostHead) bases(ctx context.Context) ([]string, error) {
	i := slices.IndexFunc(h.l.Files, func(f hub.File) bool { return f.Path == hub.CardFile })
	if i < 0 {
		return nil, nil
	}
	card, err := h.client.Read(ctx, h.l, h.l.Files[i], maxCard)
	var names []string
	for _, r := range hub.BaseModels(card) {
		names = append(names, string(r))
	}
	return names, err
}

// find finds the head in the original that the flag names.
func (h *lostHead) find(ctx context.Context, flag string) (err error) {
	if flag == byCard {
		bases, err := h.bases(ctx)
		if err != nil {
			return err
		}
		switch len(bases) {
		case 0:
			return fmt.Errorf("the model card of %s names no base_model: name the original repository with --with-head=ORG/NAME", h.l.Repo)
		case 1:
			flag = bases[0]
		default:
			return fmt.Errorf("the model card of %s names %d base models, %s: name one of them with --with-head=ORG/NAME", h.l.Repo, len(bases), strings.Join(bases, ", "))
		}
	}
	repo, revision, err := hub.ParseName(flag)
	if err == nil {
		h.from, err = h.client.List(ctx, repo, revision)
	}
	if err != nil {
		return err
	}
	if h.head, err = h.compose(ctx); err != nil {
		return fmt.Errorf("--with-head: %w", err)
	}
	return nil
}

// complete adds the head to the model in a folder if requested, and else prints a line
// on how to. A model with a head is not changed.
func (h *lostHead) complete(ctx context.Context, folder string) error {
	s, err := h.survey(folder, "")
	switch {
	case h.from == nil && (err != nil || s.Head.Present || s.Head.Promised == 0):
		return nil // other commands report the fault of the model
	case err != nil:
		return fmt.Errorf("--with-head: %w", err)
	case len(s.Head.Missing) > 0:
		return fmt.Errorf("%s has an incomplete head, %s missing: replace it with foretoken mtp inject --model %[1]s --head FILE --out DIR --force",
			h.l.Repo, console.Counted(len(s.Head.Missing), "tensor"))
	case s.Head.Present:
		h.c.Remark(fmt.Sprintf("%s has a head already, in %s", h.l.Repo, strings.Join(s.Head.Files, ", ")))
		return nil
	case h.from == nil:
		flag, from := "--with-head=ORG/NAME", ""
		if bases, err := h.bases(ctx); err == nil && len(bases) == 1 {
			flag, from = "--with-head", " from "+bases[0]
		}
		h.c.Remark(fmt.Sprintf("the files lack the multi-token-prediction head that config.json declares; to fetch it%s: foretoken pull %s %s", from, h.name(), flag))
		return nil
	}
	size := int64(len(h.head.Text))
	for _, p := range h.head.Pieces {
		size += p.Size
	}
	if err := h.fits(folder, s, size); err != nil {
		return err
	}
	show := newPullShow(h.c, h.from, []hub.File{{Path: path.Join(h.inside, checkpoint.SidecarFile), Size: size}})
	defer show.end()
	return h.client.Compose(ctx, h.head, h.l, path.Join(h.inside, checkpoint.SidecarFile), show.event)
}

// name is the requested name of the model.
func (h *lostHead) name() string {
	if h.l.Revision == "main" {
		return string(h.l.Repo)
	}
	return string(h.l.Repo) + "@" + h.l.Revision
}

// survey surveys the model in a folder, with the named file as its head if that is not empty.
func (h *lostHead) survey(folder, head string) (s *weights.Survey, err error) {
	c, err := checkpoint.Open(folder)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if head != "" {
		w, err := checkpoint.OpenWeights(head)
		if err != nil {
			return nil, err
		}
		c.Sidecars = append(c.Sidecars, &checkpoint.Sidecar{Weights: w, File: checkpoint.SidecarFile})
	}
	return model.Survey(c)
}

// fits checks the tensors of the head, whose file has the given size, against the config of the
// model in a folder, whose survey without it is s.
func (h *lostHead) fits(folder string, s *weights.Survey, size int64) (err error) {
	file, err := os.CreateTemp("", "foretoken-head-*.safetensors")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(file.Name())) }()
	_, err = file.Write(h.head.Text)
	if err = errors.Join(err, file.Truncate(size), file.Close()); err != nil { // a hole takes no space
		return err
	}
	with, err := h.survey(folder, file.Name())
	if err != nil {
		return err
	}
	wrong := ""
	switch head := &with.Head; {
	case !head.Present:
		wrong = "it has none of the tensors of a head"
	case len(head.Missing) > 0:
		wrong = fmt.Sprintf("it lacks %s, such as %s", console.Counted(len(head.Missing), "tensor"), head.Missing[0])
	case len(with.Errors) > len(s.Errors):
		wrong = with.Errors[len(with.Errors)-1].Error()
	case len(s.Errors) == 0 && len(with.Unknown) > len(s.Unknown):
		wrong = fmt.Sprintf("it has tensors that are not part of such a head, such as %s", with.Unknown[len(with.Unknown)-1])
	default:
		return nil
	}
	wrong = strings.ReplaceAll(wrong, file.Name(), checkpoint.SidecarFile)
	return fmt.Errorf("--with-head: the head of %s does not fit %s: %s", h.from.Repo, h.l.Repo, wrong)
}

// compose finds the tensors of the original's head, and makes a file of them.
func (h *lostHead) compose(ctx context.Context) (*hub.Composition, error) {
	config, err := h.read(ctx, "config.json", maxConfig)
	if err != nil {
		return nil, err
	}
	family, err := model.Of(config)
	if err != nil || family.Head == nil {
		return nil, cmp.Or(err, fmt.Errorf("models of the type of %s have no head", h.from.Repo))
	}
	names := family.Head(config)
	files, beside, err := h.files(ctx, names)
	if err != nil {
		return nil, err
	}
	c := &composing{Composition: &hub.Composition{From: h.from}, names: names, metadata: map[string]string{checkpoint.OriginKey: string(h.from.Repo) + "@" + h.from.Commit}}
	for _, file := range files {
		if err := c.add(ctx, h, file); err != nil {
			return nil, err
		}
	}
	switch {
	case len(c.decls) > 0 && c.raw:
		c.metadata[checkpoint.NormsKey] = weights.LessOne.String()
	case len(c.decls) == 0 && beside != nil:
		if err := c.add(ctx, h, *beside); err != nil {
			return nil, err
		}
	}
	if len(c.decls) == 0 {
		return nil, fmt.Errorf("%s has no head either: name another repository with --with-head=ORG/NAME", h.from.Repo)
	}
	c.Text, err = checkpoint.FileHeader(c.decls, c.metadata)
	return c.Composition, err
}

// composing is the file of a head that is being composed.
type composing struct {
	*hub.Composition
	names    model.HeadNames
	decls    []checkpoint.Decl
	metadata map[string]string
	raw      bool // the model has the norms of a release, and so has a head in its files
}

// add adds the part of the head in a file of the original. The file's metadata about norms is
// kept.
func (c *composing) add(ctx context.Context, h *lostHead, file hub.File) error {
	header, err := h.header(ctx, file)
	if err != nil {
		return fmt.Errorf("%s of %s: %w", file.Path, h.from.Repo, err)
	}
	for _, t := range header.Tensors {
		if c.names.Tells != nil && c.names.Tells(t.Name) {
			c.raw = c.names.Norms(t.Shape, header.Metadata["format"]) == weights.LessOne
		}
		if !c.names.Has(t.Name) {
			continue
		}
		for _, key := range []string{"format", checkpoint.NormsKey} {
			if said := header.Metadata[key]; said != "" {
				c.metadata[key] = said
			}
		}
		c.decls = append(c.decls, t.Decl)
		c.Pieces = appendPiece(c.Pieces, hub.Piece{File: file, Offset: int64(t.Begin), Size: int64(t.End - t.Begin)})
	}
	return nil
}

// appendPiece adds a piece, to the last one if it follows it in the file.
func appendPiece(list []hub.Piece, p hub.Piece) []hub.Piece {
	if n := len(list) - 1; n >= 0 && list[n].File == p.File && list[n].Offset+list[n].Size == p.Offset {
		list[n].Size += p.Size
		return list
	}
	return append(list, p)
}

// file is a file of the original by its path.
func (h *lostHead) file(path string) (hub.File, bool) {
	i := slices.IndexFunc(h.from.Files, func(f hub.File) bool { return f.Path == path })
	if i < 0 {
		return hub.File{}, false
	}
	return h.from.Files[i], true
}

func (h *lostHead) read(ctx context.Context, path string, limit int) ([]byte, error) {
	f, ok := h.file(path)
	if !ok {
		return nil, fmt.Errorf("%s has no %s", h.from.Repo, path)
	}
	return h.client.Read(ctx, h.from, f, limit)
}

// files are the files of the original's weights that may hold a part of the head, or tell how it is
// stored: those of the index, or the only one. If none of them has the head, it is in the file
// beside them, if that exists.
func (h *lostHead) files(ctx context.Context, names model.HeadNames) (files []hub.File, beside *hub.File, err error) {
	paths := []string{"model.safetensors"}
	if _, ok := h.file(checkpoint.IndexFile); ok {
		text, err := h.read(ctx, checkpoint.IndexFile, maxIndex)
		if err != nil {
			return nil, nil, err
		}
		shards, err := checkpoint.ParseIndex(text)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", h.from.Repo, err)
		}
		paths = nil
		for shard, tensors := range shards {
			if slices.ContainsFunc(tensors, names.Has) || names.Tells != nil && slices.ContainsFunc(tensors, names.Tells) {
				paths = append(paths, shard)
			}
		}
		slices.Sort(paths)
	}
	if len(paths) > maxHeadFiles {
		return nil, nil, fmt.Errorf("the head of %s is spread over %d files, want at most %d", h.from.Repo, len(paths), maxHeadFiles)
	}
	for _, path := range paths {
		if f, ok := h.file(path); ok {
			files = append(files, f)
		}
	}
	if f, ok := h.file(checkpoint.SidecarFile); ok {
		beside = &f
	}
	return files, beside, nil
}

// header reads the header of a file of the original, and nothing else of it.
func (h *lostHead) header(ctx context.Context, f hub.File) (*checkpoint.Header, error) {
	if int64(int(f.Size)) != f.Size || f.Size < 8 {
		return nil, fmt.Errorf("not a safetensors file: %d bytes", f.Size)
	}
	first, err := h.client.ReadPiece(ctx, h.from, hub.Piece{File: f, Size: 8})
	if err != nil {
		return nil, err
	}
	n, err := checkpoint.HeaderBytes([8]byte(first))
	if err != nil {
		return nil, err
	}
	if n > maxHeadHeader {
		return nil, fmt.Errorf("header of %d bytes, want at most %d", n, maxHeadHeader)
	}
	text, err := h.client.ReadPiece(ctx, h.from, hub.Piece{File: f, Size: int64(n)})
	if err != nil {
		return nil, err
	}
	return checkpoint.ParseHeader(text, int(f.Size))
}

// isFolder reports whether the fetched files are the folder of a checkpoint, not a GGUF file.
func isFolder(files []hub.File) bool {
	return slices.ContainsFunc(files, func(f hub.File) bool { return filepath.Ext(f.Path) == ".safetensors" })
}
