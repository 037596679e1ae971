package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dialogue"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/picture"
)

// Pictures is the preprocessing of images of a model with a vision tower, by the files around the weights.
type Pictures struct {
	Tokens    []pictureToken `json:"tokens"`
	File      string         `json:"file"` // with the preprocessing; empty: none, and as for the releases
	MinPixels int            `json:"min_pixels"`
	MaxPixels int            `json:"max_pixels"` // of the checkpoint; commands have another limit
	MaxTokens int            `json:"max_tokens"` // of an image of that many pixels

	config picture.Config
}

// pictureToken is a token in place of an image or video, or around one.
type pictureToken struct {
	Field string `json:"field"` // of config.json
	ID    int32  `json:"id"`    // -1: there is none
	Token string `json:"token"`
}

// vision checks the files that a vision tower needs besides its weights, and lists their faults.
// The model takes text in any case.
func (f *Facts) vision(c *checkpoint.Checkpoint) {
	if f.Model == nil || !f.Model.Tower.Present {
		return
	}
	t := &f.Model.Tower
	if t.Problem != nil {
		remedy := fmt.Sprintf("for text, leave the tower out: foretoken convert --model %s --out DIR --no-vision", quoted(f.Name))
		if !errors.Is(t.Problem, weights.ErrTextOnly) {
			remedy = "for images, fetch or convert the original again; " + remedy
		}
		f.problem(false, remedy, "the vision tower cannot be used, the model accepts text only: %s", f.bare(t.Problem.Error()))
		return
	}
	p := &Pictures{}
	if err := p.read(c); err != nil {
		f.problem(false, "copy that file again from where the model was published", "images are refused: %v", err)
		return
	}
	const copyFile = "copy preprocessor_config.json from where the model was published"
	x := &p.config
	switch half := [3]float32{0.5, 0.5, 0.5}; {
	case x.Patch != t.Patch || x.Merge != t.Merge || x.Temporal != t.Temporal:
		f.problem(false, copyFile, "images are refused: %s sets patches of %d pixels and %d frames, and tokens of %d×%d patches, but the tower needs patches of %d pixels and %d frames, and tokens of %d×%d patches",
			p.where(), x.Patch, x.Temporal, x.Merge, x.Merge, t.Patch, t.Temporal, t.Merge, t.Merge)
		return
	case p.File == "":
		f.problem(false, copyFile, "there is no preprocessor_config.json: images are prepared as for the released models")
	case x.Mean != half || x.Std != half:
		f.problem(false, copyFile, "%s has image_mean %v and image_std %v, the values of another family: the releases have 0.5", p.File, x.Mean, x.Std)
	}
	side := t.Patch * t.Merge
	p.MinPixels, p.MaxPixels, p.MaxTokens = x.MinPixels, x.MaxPixels, x.MaxPixels/(side*side)
	f.Pictures = p
}

// bare is an error's text without the names of our packages.
func (f *Facts) bare(text string) string {
	for _, name := range []string{f.family.Package, "weights", "checkpoint"} {
		text = strings.TrimPrefix(text, name+": ")
	}
	return text
}

// read finds the preprocessing of images.
func (p *Pictures) read(c *checkpoint.Checkpoint) error {
	p.config = picture.Images()
	for _, name := range []string{"preprocessor_config.json", "processor_config.json"} {
		text, err := c.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			p.config, err = picture.ReadImages(text)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		p.File = name
		break
	}
	return nil
}

// where is the source of the preprocessing.
func (p *Pictures) where() string {
	if p.File == "" {
		return "the default for released models, in place of a missing preprocessor_config.json,"
	}
	return p.File
}

// pictureTokens finds the tokens of images: those of the config, else those of the
// family. The tokenizer is known by then.
func (f *Facts) pictureTokens(c *checkpoint.Checkpoint) {
	if f.Pictures == nil || f.tok == nil {
		return
	}
	var config map[string]json.RawMessage
	if err := json.Unmarshal(c.Config(), &config); err != nil {
		return // which was reported
	}
	usual := f.family.Dialogue.Pictures
	for _, x := range []struct{ field, spelling string }{
		{"image_token_id", usual.Image},
		{"video_token_id", usual.Video},
		{"vision_start_token_id", usual.Start},
		{"vision_end_token_id", usual.End},
	} {
		own, known := f.tok.ID(x.spelling)
		t := pictureToken{x.field, -1, x.spelling}
		if known {
			t.ID = own
		}
		var said *int32
		if text, ok := config[x.field]; ok && json.Unmarshal(text, &said) == nil && said != nil {
			t.ID = *said
			t.Token, _ = f.tok.Token(t.ID)
		}
		switch {
		case t.ID < 0 && x.field == "video_token_id":
			f.problem(false, "copy config.json and tokenizer.json from where the model was published",
				"videos are refused: neither config.json nor tokenizer.json has a token for them")
		case t.ID < 0:
			f.problem(false, "copy config.json and tokenizer.json from where the model was published",
				"images are refused: config.json has no %s, and tokenizer.json has no %s", x.field, x.spelling)
		case known && t.ID != own:
			f.problem(false, fmt.Sprintf("set %s to %d in config.json", x.field, own),
				"config.json: %s is %d, which is %q; %s is %d", x.field, t.ID, t.Token, x.spelling, own)
		}
		f.Pictures.Tokens = append(f.Pictures.Tokens, t)
	}
}

// pictures checks whether a template has a place for images.
func (t *Template) pictures(template *dialogue.Template, mark string) {
	prompt, err := template.Render(dialogue.Input{Messages: []chat.Message{{Role: "user", Content: chat.Parts(chat.Part{Media: &chat.Media{}})}}})
	t.Pictures = err == nil && mark != "" && strings.Contains(prompt.Text, mark)
}

// vision describes the tower.
func (t *table) vision(f *Facts) {
	n := &f.Model.Tower
	switch {
	case !n.Present && n.Promised:
		t.row("vision", "none, although config.json has a vision_config")
		return
	case !n.Present:
		t.row("vision", "none")
		return
	case n.Problem != nil:
		t.row("vision", "a tower that cannot be used")
		return
	}
	t.row("vision", "%s of width %d with %d heads, %s parameters; patches of %d×%d pixels and %s, a token for %d×%d patches",
		counted(n.Layers, "layer", "layers"), n.Width, n.Heads, countText(n.Parameters), n.Patch, n.Patch, counted(n.Temporal, "frame", "frames"), n.Merge, n.Merge)
	p := f.Pictures
	if p == nil {
		return
	}
	by := "by " + p.File
	if p.File == "" {
		by = "as for the released models"
	}
	t.row("", "images of %d to %d pixels, up to %s, %s", p.MinPixels, p.MaxPixels, counted(p.MaxTokens, "token", "tokens"), by)
	var names []string
	for _, x := range p.Tokens {
		if x.ID >= 0 {
			names = append(names, strings.TrimSpace(fmt.Sprintf("%d %s", x.ID, x.Token)))
		}
	}
	if len(names) > 0 {
		t.row("", "tokens %s", strings.Join(names, ", "))
	}
}
